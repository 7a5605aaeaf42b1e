# Applications that bring an event loop of their own, EV or AnyEvent, wait in it while others are served; EV
# may be loaded at any time, and the server keeps its signals, its timers and its children.
use strict;
use warnings;

use lib 't/lib';
use Config;
use IO::Async::Loop;
use IO::Socket::IP ();
use OnlyInFull     qw(only_in_full);
use POSIX          ();
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(content program_path wait_for);
use TestWorkers qw(children directory write_file);

BEGIN {
    for my $module (qw(AnyEvent EV IO::Async::Loop::Epoll)) {
        my $is_there = system($^X, "-M$module", '-e', '1') == 0;    # here nothing of it is to be loaded
        plan skip_all => "needs $module" if !$is_there;
    }
}

$ENV{IO_ASYNC_LOOP} = 'Peregrine';
my $dir = directory();

sub ask {
    my ($port, $path) = @_;
    return TestClient->new($port)->send("GET $path HTTP/1.1\r\nHost: h\r\n\r\n");
}

# Hundredths of a second.
sub cpu_ticks {
    my ($pid)  = @_;
    my @fields = split ' ', content("/proc/$pid/stat") =~ s/\A.*\) //sr;
    return $fields[11] + $fields[12];
}

sub told { return ($_[0]->response // { body => 'no answer' })->{body} }

# In the child that serves.
sub wait_a_little {
    my ($respond) = @_;
    my $timer;
    $timer = EV::timer(
        0.01, 0,
        sub {
            undef $timer;
            my $writer = $respond->([ 200, [] ]);
            my $count  = 0;
            $timer =
                EV::timer(0.01, 0.01,
                sub { $writer->write($count); ++$count < 3 or undef $timer, $writer->close });
        }
    );
    return;
}

my (%kept, @heard);
my %DO = (
    '/load'  => sub { require EV; return 'loaded' },
    '/late'  => sub { return \&wait_a_little },
    '/depth' => sub { return EV::depth() },
    # Blocks in EV until /let has come.
    '/block' => sub { delete $kept{let}; EV::run(EV::RUN_ONCE()) until $kept{let}; return 'let' },
    '/let' => sub { $kept{let} = 1; return 'ok' },
    # Many of these lie in each other, but not more than a bound.
    '/nest' => sub {
        my $depth = EV::depth();
        my $timer = EV::timer(0.01, 0.01, sub { $kept{go} = 1 if -e "$dir/go" });
        EV::run(EV::RUN_ONCE()) until $kept{go};
        return $depth;
    },
    '/die' => sub {
        return sub {
            my ($respond) = @_;
            my $timer;
            $timer = EV::timer(0.01, 0, sub { undef $timer; die "in a callback of EV\n" });
        };
    },
    '/break' => sub {
        return sub {
            my ($respond) = @_;
            my $timer;
            $timer = EV::timer(
                0.01, 0,
                sub {
                    undef $timer;
                    EV::break(EV::BREAK_ALL());
                    $respond->([ 200, [], ['broken'] ]);
                }
            );
        };
    },
    # IO::Async's own.
    '/timer' => sub {
        return sub {
            my ($respond) = @_;
            IO::Async::Loop->new->watch_time(
                after => 0.05,
                code  => sub { $respond->([ 200, [], ['timer'] ]) }
            );
        };
    },
    '/pid'  => sub { return $$ },
    '/busy' => sub {
        $kept{idle} = EV::idle(sub { $kept{turns}++ });
        return 'busy';
    },
    # IO::Async's timers go on while the other loop is never idle.
    '/turns' => sub {
        my $turns = $kept{turns};
        return sub {
            my ($respond) = @_;
            IO::Async::Loop->new->watch_time(
                after => 0.05,
                code  => sub { $respond->([ 200, [], [ $kept{turns} > $turns ? 'both' : 'one' ] ]) }
            );
        };
    },
    '/attach' => sub {
        IO::Async::Loop->new->attach_signal(USR2 => sub { note_heard('loop') });
        return $$;
    },
    '/signals' => sub {
        for my $name (qw(TERM USR2)) {
            $kept{$name} = EV::signal($name => sub { note_heard($name) });
        }
        return 'ok';
    },
    # AnyEvent's loop and IO::Async's watch children in the same process.
    '/children' => sub {
        my @pids = map { start_child($_) } 3, 4, 5;
        return sub {
            my ($respond) = @_;
            my @ended;
            my $note = sub {
                push @ended, $_[0] >> 8;
                $respond->([ 200, [], ["@{[ sort @ended ]}"] ]) if @ended == 3;
            };
            $kept{child} = EV::child($pids[0], 0, sub { $note->($_[0]->rstatus) });
            IO::Async::Loop->new->watch_process($pids[1] => sub { $note->($_[1]) });
            $kept{other} = EV::child($pids[2], 0, sub { $note->($_[0]->rstatus) });
        };
    },
    # A child that uses EV, without the watchers of its parent.
    '/fork' => sub {
        my $pid = fork // die "fork: $!";
        if (!$pid) {
            pipe my $in, my $out or die "pipe: $!";
            POSIX::dup2(fileno $in, 200);
            my $watcher = EV::io(200, EV::READ(), sub { });
            my $timer   = EV::timer(0.05, 0, sub { POSIX::_exit(is_watched(getppid, 200) ? 9 : 7) });
            EV::run();
            POSIX::_exit(8);
        }
        return sub {
            my ($respond) = @_;
            IO::Async::Loop->new->watch_process($pid => sub { $respond->([ 200, [], [ $_[1] >> 8 ] ]) });
        };
    },
);

# Whether a process has an epoll instance with that descriptor.
sub is_watched {
    my ($pid, $fd) = @_;
    return grep { content($_) =~ /^tfd:\s+$fd\b/m } glob "/proc/$pid/fdinfo/*";
}

sub note_heard {
    push @heard, @_;
    open my $out, '>', "$dir/heard.new" or die $!;
    print {$out} join ' ', sort @heard;
    close $out;
    return rename "$dir/heard.new", "$dir/heard";
}

sub start_child {
    my ($status) = @_;
    my $pid = fork // die "fork: $!";
    POSIX::_exit($status) if !$pid;
    return $pid;
}

my $app = sub {
    my ($env)  = @_;
    my $do     = $DO{ $env->{PATH_INFO} } // return [ 200, [], [ $INC{'EV.pm'} ? 'EV' : 'plain' ] ];
    my $answer = $do->($env);
    return ref $answer ? $answer : [ 200, [], [$answer] ];
};

sub start { return TestServer->start(psgi => 1, app => $app, @_) }

subtest 'EV is loaded in a request' => sub {
    my $server = start();
    my $port   = $server->port;
    is get($port, '/')->{body},     'plain',  'an application without EV';
    is get($port, '/load')->{body}, 'loaded', '... that loads it';
    is get($port, '/late')->{body}, '012',    '... and waits in it';
    is_deeply [ map { told($_) } map { ask($port, '/late') } 1 .. 50 ], [ ('012') x 50 ], 'fifty wait';
    is get($port, '/timer')->{body}, 'timer', '... or in IO::Async';
    is get($port, '/depth')->{body}, 0,       'a request is handled outside of EV';
    my $pid  = get($port, '/pid')->{body};
    my $used = cpu_ticks($pid);
    sleep 1;
    cmp_ok cpu_ticks($pid) - $used, '<', 20, 'an interpreter that waits does nothing meanwhile';
    like get($port, '/die')->{body}, qr/Internal Server Error/, 'an exception in a callback';
    is get($port, '/break')->{body}, 'broken', 'EV::break stops nothing';
    is get($port, '/late')->{body},  '012',    'the server goes on';
    is $server->stop, 0, 'the server stops';
    like $server->log, qr/EV: error in callback \(ignoring\): in a callback of EV/, 'EV tells what has died';
};

subtest 'EV is loaded in a request, and the engine is in another process' => sub {
    my $server = start(engine => 'process', workers => 1);
    my $port   = $server->port;
    is get($port, '/load')->{body}, 'loaded', 'an application loads EV';
    is get($port, '/late')->{body}, '012',    '... and has further requests, with EV';
    is $server->stop, 0, 'the server stops';
};

subtest 'a loop that never idles' => sub {
    my $server = start();
    my $port   = $server->port;
    get($port, $_) for qw(/load /busy);
    is get($port, '/turns')->{body}, 'both', 'an idle watcher, a timer of IO::Async, and a request';
    is get($port, '/late')->{body},  '012',  '... and timers of EV';
    is $server->stop, 0, 'the server stops';
};

# With an engine on a thread, what comes to a request that blocks waits.
subtest 'a request that waits in EV itself' => sub {
    my $server = start(engine => 'inline');
    my $port   = $server->port;
    get($port, '/load');
    get($port, '/');
    my $blocked = ask($port, '/block');
    ok wait_for(sub { get($port, '/depth')->{body} > 0 }), 'other requests are served within its wait';
    is get($port, '/late')->{body}, '012', '... those that wait, too';
    is get($port, '/let')->{body},  'ok',  '... and may end it';
    is told($blocked), 'let', 'the server goes on';
    my @nested = map { ask($port, '/nest') } 1 .. 30;
    ok wait_for(sub { !$nested[0]->some(0.1) }), 'thirty that wait within each other';
    write_file('go', '');
    my @depths = sort { $a <=> $b } map { told($_) } @nested;
    is scalar(@depths),             30,    'all go on';
    is $depths[-1],                 16,    '... which do not lie deeper in each other than there is room for';
    is get($port, '/late')->{body}, '012', 'and others are served again';
    is $server->stop,               0,     'the server stops';
};

subtest 'signals and children' => sub {
    my $server = start();
    my $port   = $server->port;
    my $pid    = get($port, '/attach')->{body};
    get($port, $_) for qw(/load /signals);
    is get($port, '/children')->{body}, '3 4 5', 'children of EV and of IO::Async';
    kill USR2 => $pid;
    ok wait_for(sub { content("$dir/heard") eq 'USR2 loop' }), 'a signal that both watch'
        or diag content("$dir/heard");
    is get($port, '/fork')->{body}, 7,                'a child that waits in EV';
    is get($port, '/late')->{body}, '012',            'the server goes on';
    is $server->stop,               0,                'the server has its own';
    is content("$dir/heard"),       'TERM USR2 loop', '... of which the application hears';
};

# ---- Applications as their users start them -----------------------------------------------------

# Asks a server of the test through AnyEvent, and answers with what that says.
my $fetch = <<'APP';
use AnyEvent;
use AnyEvent::Handle;
use AnyEvent::Socket;
use POSIX ();
my %kept;
sub fetch {
    my ($port, $done) = @_;
    tcp_connect '127.0.0.1', $port, sub {
        my ($socket) = @_ or return $done->("no connection: $!");
        my $handle;
        $handle = AnyEvent::Handle->new(
            fh       => $socket,
            on_error => sub { $done->("error: $_[2]"); undef $handle },
        );
        $handle->push_write("hello\n");
        $handle->push_read(line => sub { $done->($_[1]); undef $handle });
    };
    return;
}
sub child {
    my ($done) = @_;
    my $pid = fork;
    POSIX::_exit(6) if !$pid;
    $kept{$pid} = AnyEvent->child(pid => $pid, cb => sub { delete $kept{$pid}; $done->($_[1] >> 8) });
    return;
}
APP
my $psgi = <<'APP';
sub {
    my ($env) = @_;
    my ($what, $port) = $env->{PATH_INFO} =~ m{\A/(\w*)/?(\d*)\z};
    return [ 200, [], ['now'] ]             if $what eq '';
    return [ 200, [], [AnyEvent::detect()] ] if $what eq 'which';
    return sub {
        my ($respond) = @_;
        my $done = sub { $respond->([ 200, [], [ $_[0] ] ]) };
        return $what eq 'child' ? child($done) : fetch($port, $done);
    };
}
APP
my $pagi = <<'APP';
use Future::AsyncAwait;
async sub ($scope, $receive, $send) {
    die "no\n" if $scope->{type} ne 'http';
    my ($what, $port) = $scope->{path} =~ m{\A/(\w*)/?(\d*)\z};
    my $future = Future->new;
    my $done = sub { $future->done($_[0]) };
    if    ($what eq '')      { $done->('now') }
    elsif ($what eq 'which') { $done->(AnyEvent::detect()) }
    elsif ($what eq 'child') { child($done) }
    else                     { fetch($port, $done) }
    my $text = await $future;
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body',  body   => $text });
}
APP
my %model = (EV => 'AnyEvent::Impl::EV', AnyEvent => 'AnyEvent::Impl::IOAsync');
for my $module (sort keys %model) {
    write_file("$module.psgi", "use $module;\n$fetch$psgi");
    write_file("$module.pagi.pl",
        "use v5.32; use warnings; use experimental 'signatures'; use $module;\n$fetch$pagi");
}

sub check_waiting {
    my ($server, $module, %options) = @_;
    my ($port) = ($server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)}) // '') =~ /(\d+)\z/;
    is get($port, '/which')->{body}, $model{$module}, 'its loop';
    my $listener = IO::Socket::IP->new(Listen => 1, LocalHost => '127.0.0.1', LocalPort => 0) or die $@;
    my $waiting  = ask($port, '/fetch/' . $listener->sockport);
    local $SIG{ALRM} = sub { die "nobody connects\n" };
    my $peer = $listener->accept;
    is $peer->getline, "hello\n", 'an outgoing connection';
    is_deeply [ map { told($_) } map { ask($port, '/') } 1 .. 50 ], [ ('now') x 50 ],
        'fifty others are served';
    $peer->print("hi\n");
    $peer->close;
    is told($waiting), 'hi', '... before there is an answer';
    # Signals do not come to clones.
    is get($port, '/child')->{body}, 6,     'the end of a child' if !$options{clones};
    is get($port, '/')->{body},      'now', 'the server goes on';
    is $server->stop, 0, 'the server stops';
    unlike $server->raw_log, qr/panic|Attempt to free|exception|cannot/, 'nothing strange in the log';
    return;
}

my @at      = qw(--listen 127.0.0.1:0);
my $plackup = program_path('plackup');

# A timer that is made when the application is loaded runs where it is served.
subtest 'processes that serve no application' => sub {
    delete local $ENV{PEREGRINE_ENGINE};    # an engine that is asked for by name is not changed
    my $ticks = write_file('ticks.psgi', <<"APP");
use EV;
my %ticks;
our \$timer = EV::timer(0.01, 0.01, sub {
    open my \$mark, '>', "$dir/tick.\$\$" if ++\$ticks{\$\$} == 10;
});
sub { [ 200, [], [\$\$] ] }
APP
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        $plackup, qw(-s EVHTP -E deployment --workers 2),
        @at,      $ticks
    );
    my $why = $Config{useithreads} ? 'the application has loaded EV, which .*' : 'this Perl has no threads';
    ok $server->wait_for_log(qr/$why.*: the workers are processes/),
        'the log says that interpreters are no threads';
    ok wait_for(sub { my @marks = glob "$dir/tick.*"; @marks >= 2 }), 'both workers have the timer';
    my @engine = grep { !-e "$dir/tick.$_" } children($server->pid);
    ok !-e "$dir/tick." . $server->pid, '... the master has not';
    is scalar(@engine), 1, '... nor has the engine';
    is $server->stop,   0, 'the server stops';
};

# EV's descriptors come from the process that loaded it: each worker is to have its own.
subtest 'workers that EV was loaded for' => sub {
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        $plackup, qw(-s Peregrine -E deployment --engine process --workers 2),
        @at,      "$dir/EV.psgi"
    );
    my ($port) = ($server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)}) // '') =~ /(\d+)\z/;
    for (1 .. only_in_full(10) || 3) {
        my @answers = map { told($_) } map { ask($port, '/child') } 1 .. 4;
        is "@answers", '6 6 6 6', 'they hear of the end of their children' or last;
    }
    is $server->stop, 0, 'the server stops';
};

for my $module (sort keys %model) {
    for my $placement (
        'inline',
        only_in_full('inline --workers 1', 'thread'),
        'thread --workers 2',
        'process --workers 2'
        )
    {
        subtest "plackup, $module, $placement" => sub {
            my $has_clones = $placement eq 'thread --workers 2';
            plan skip_all => 'clones have no EV' if $has_clones && $module eq 'EV';
            my $server = TestServer->spawn(
                $^X, (map { "-I$_" } @INC),
                $plackup, qw(-s Peregrine -E deployment),
                @at, '--engine', split(/ /, $placement),
                "$dir/$module.psgi"
            );
            check_waiting($server, $module, clones => $has_clones);
        };
    }
    for my $placement (only_in_full('inline', 'thread'), 'process --workers 2') {
        subtest "pagi-server, $module, $placement" => sub {
            my $server = TestServer->spawn(
                $^X, (map { "-I$_" } @INC),
                'bin/pagi-server', @at, '--engine', split(/ /, $placement),
                "$dir/$module.pagi.pl"
            );
            check_waiting($server, $module);
        };
    }
}

# The manual's statements about Mojolicious.
subtest 'Mojolicious' => sub {
    plan skip_all => 'needs Mojolicious' if system($^X, '-MMojolicious::Lite', '-e', '1') != 0;
    my $mojo = write_file('mojo.psgi', <<'APP');
use Mojolicious::Lite -signatures;
use Mojo::Promise;
app->log->level('fatal');
get '/which' => sub ($c) { $c->render(text => ref Mojo::IOLoop->singleton->reactor) };
get '/late' => sub ($c) { $c->render_later; Mojo::IOLoop->timer(0.05 => sub { undef $c }) };
get '/write' => sub ($c) {
    my $count = 0;
    my $next;
    $next = sub {
        return $c->write_chunk('') if $count == 3;
        $c->write_chunk(++$count => sub { Mojo::Promise->timer(0.01)->then($next) });
    };
    $next->();
};
get '/wait' => sub ($c) {
    my $text = 'not waited';
    Mojo::Promise->timer(0.05)->then(sub { $text = 'waited' })->wait;
    $c->render(text => $text);
};
app->start;
APP
    for my $engine (only_in_full('inline', 'thread'), 'process --workers 1') {
        my $server = TestServer->spawn(
            $^X, (map { "-I$_" } @INC),
            $plackup, qw(-s Peregrine -E deployment),
            @at, '--engine', split(/ /, $engine), $mojo
        );
        my ($port) = ($server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)}) // '') =~ /(\d+)\z/;
        is get($port, '/which')->{body},  'Mojo::Reactor::EV', "$engine: its loop";
        is get($port, '/write')->{body},  '123',               "$engine: what is written by and by";
        is get($port, '/wait')->{body},   'waited',            "$engine: a promise that it waits for";
        is get($port, '/late')->{status}, 404,                 "$engine: it does not wait itself";
        is $server->stop, 0, "$engine: it stops";
    }
};

done_testing;
