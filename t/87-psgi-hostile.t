# PSGI applications that do what no application should: their requests fail, and the server goes on.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use IO::Async::Loop;
use OnlyInFull   qw(only_in_full);
use Scalar::Util ();
use Test::More;
use TestClient qw(exchange get post);
use TestServer;
use TestTools qw(wait_for);
use TestWebSocket;

package Bomb {
    use overload '""' => sub { die "no string\n" }, bool => sub { die "no truth\n" }, fallback => 1;
    sub new     { return bless {}, shift }
    sub getline { die Bomb->new }
    sub close   { die "no end\n" }
}

package Odd {
    sub new { my ($class, @lines) = @_; return bless { lines => \@lines }, $class }

    sub getline {
        my ($self) = @_;
        return shift @{ $self->{lines} };
    }
    sub close { die "cannot be closed\n" }
}

package TiedHash {
    sub TIEHASH { return bless {}, shift }
    sub FETCH   { return undef }
    sub DELETE  { die "not to be removed\n" }
}

package Text {
    use overload '""' => sub { $_[0]->() };
    sub new { my ($class, $code) = @_; return bless $code, $class }
}

package TiedScalar {
    sub TIESCALAR { my ($class, $code) = @_; return bless $code, $class }
    sub FETCH     { return $_[0]->() }
    sub STORE     { die "not to be changed\n" }
}

package TiedHandle {
    sub TIEHANDLE { my ($class, @lines) = @_; return bless \@lines, $class }
    sub READLINE  { return shift @{ $_[0] } }
    sub CLOSE     { return 1 }
    sub FILENO    { return 1 }
}

package AtEnd {
    sub new     { my ($class, $code) = @_; return bless $code, $class }
    sub DESTROY { $_[0]->() }
}

package main;

my @plain = ('Content-Type' => 'text/plain');

sub tied_scalar { my ($code) = @_; tie my $value, 'TiedScalar', $code; return \$value }

sub tied_handle {
    my @lines = @_;
    open my $handle, '<', '/dev/null' or die $!;
    tie *$handle, 'TiedHandle', @lines;
    return $handle;
}

# Hostile applications, each with the status that its client gets, or 'cut'.
my %answers = (
    'bomb status'     => [ 500,   sub { [ Bomb->new, [@plain],  [] ] } ],
    'bomb headers'    => [ 500,   sub { [ 200,       Bomb->new, [] ] } ],
    'bomb body'       => [ 'cut', sub { [ 200,       [@plain],  Bomb->new ] } ],
    'bomb response'   => [ 500,   sub { Bomb->new } ],
    'dies of a bomb'  => [ 500,   sub { die Bomb->new } ],
    'dies of nothing' => [ 500,   sub { die '' } ],
    'dies of a list'  => [ 500,   sub { die [ 1, 2 ] } ],
    'die handler'     => [
        500,
        sub {
            local $SIG{__DIE__} = sub { die Bomb->new };
            die "x\n";
        }
    ],
    'magic status' => [
        500,
        sub { [ ${ tied_scalar(sub { die "no status\n" }) }, [], [] ] }
    ],
    'tied header' => [
        200,
        sub {
            my $x = tied_scalar(sub { 'v' });
            [ 200, [ 'X-A', $$x ], ['x'] ];
        }
    ],
    'glob status' => [ 500, sub { [ *STDOUT, [], [] ] } ],
    'code header' => [
        200,
        sub { [ 200, [ 'X-A' => sub { } ], ['x'] ] }
    ],
    'large header' => [ 500, sub { [ 200, [ 'X-A' => 'x' x 10_000_000 ], ['x'] ] } ],
    'many headers' => [
        500,
        sub { [ 200, [ map { ("X-$_" => 'x' x 50) } 1 .. 100_000 ], ['x'] ] }
    ],
    'nul in a header'       => [ 500,   sub { [ 200, [ 'X-A' => "a\0b" ], ['x'] ] } ],
    'nested body'           => [ 200,   sub { [ 200, [@plain],            [ [1] ] ] } ],
    'body of undef'         => [ 500,   sub { [ 200, [@plain],            undef ] } ],
    'body of a hash'        => [ 500,   sub { [ 200, [@plain],            {} ] } ],
    'body of a number'      => [ 500,   sub { [ 200, [@plain],            42 ] } ],
    'getline of references' => [ 200,   sub { [ 200, [@plain],            Odd->new([],  {}, \1) ] } ],
    'getline of bombs'      => [ 'cut', sub { [ 200, [@plain],            Odd->new('a', Bomb->new) ] } ],
    'getline of objects'    => [
        200,
        sub { [ 200, [@plain], Odd->new(Text->new(sub { 'a' })) ] }
    ],
    'getline of wide text' => [ 'cut', sub { [ 200, [@plain], Odd->new("\x{263a}") ] } ],
    'close dies'           => [ 200,   sub { [ 200, [@plain], Odd->new('a', 'b') ] } ],
    'tied handle'          => [ 200,   sub { [ 200, [@plain], tied_handle('a', 'b') ] } ],
    'closed handle' => [ 200, sub { open my $x, '<', '/dev/null' or die; close $x; [ 200, [@plain], $x ] } ],
    'write handle'  => [ 200, sub { [ 200, [@plain], File::Temp->new ] } ],
    'cleanup of a word' =>
        [ 200, sub { $_[0]{'psgix.cleanup.handlers'} = 'word'; [ 200, [@plain], ['x'] ] } ],
    'cleanup of words' => [
        200, sub { push @{ $_[0]{'psgix.cleanup.handlers'} }, 1, undef, Bomb->new; [ 200, [@plain], ['x'] ] }
    ],
    'undefines env'          => [ 200, sub { undef %{ $_[0] }; [ 200, [@plain], ['x'] ] } ],
    'responds while it goes' => [
        200,
        sub {
            my ($env) = @_;
            return sub {
                my ($respond) = @_;
                AtEnd->new(sub { $respond->([ 200, [@plain], ['x'] ]) });
                return;
            };
        }
    ],
    'writes for ever after' => [
        200,
        sub {
            return sub {
                my $writer = $_[0]->([ 200, [@plain] ]);
                $writer->close;
                $writer->write('x') for 1 .. 100;
                $writer->poll_cb(sub { die "never\n" });
            };
        }
    ],
    'drops its writer' => [
        200,
        sub {
            sub {
                my $writer = $_[0]->([ 200, [@plain] ]);
                IO::Async::Loop->new->later(sub {
                    $writer->write(Text->new(sub { undef $writer; 'x' }));
                });
            }
        }
    ],
    'responds twice at once' => [
        200,
        sub {
            sub {
                my ($respond) = @_;
                tie my $response, 'TiedScalar', sub { $respond->([ 200, [@plain], ['x'] ]) };
                print STDERR "answered twice\n" if eval { $respond->($response); 1 };
            }
        }
    ],
    'poll_cb dies' => [
        'cut',
        sub {
            sub {
                $_[0]->([ 200, [@plain] ])->poll_cb(sub { die Bomb->new });
            }
        }
    ],
    'calls it again' => [
        500,
        sub {
            sub { my ($r) = @_; $r->($_) for 1, 2 }
        }
    ],
    'not from here' => [
        500,
        sub {
            my $class = 'Plack::Handler::Peregrine::Writer';
            $class->can('write')->(bless(\(my $x = 1), $class), 'x');
        }
    ],
    'forks' => [
        200,
        sub {
            my $pid = fork // die "fork: $!";
            return [ 200, [@plain], ['child'] ] if !$pid;
            waitpid $pid, 0;
            return [ 200, [@plain], ['parent'] ];
        }
    ],
    'forks and dies' => [
        200,
        sub {
            my $pid = fork // die "fork: $!";
            die "in the child\n" if !$pid;
            waitpid $pid, 0;
            return [ 200, [@plain], ['parent'] ];
        }
    ],
    'local $@' => [
        200,
        sub {
            local $@ = 'left';
            eval { die 'x' };
            [ 200, [@plain], ['x'] ];
        }
    ],
    'wants'  => [ 200, sub { [ 200, [@plain], [ defined wantarray ? wantarray ? 'l' : 's' : 'v' ] ] } ],
    'signal' => [ 200, sub { kill USR1 => $$; [ 200, [@plain], ['x'] ] } ],
    'loop'   => [ 200, sub { IO::Async::Loop->new->loop_once(0); [ 200, [@plain], ['x'] ] } ],
    'last'   => [ 500, sub { no warnings 'exiting'; last } ],
);

# Applications that end their process, for servers with workers.
my %deadly = (
    'exits' => sub { exit 0 },
    'kills' => sub { kill KILL => $$; sleep 60 },
    '_exit' => sub { POSIX::_exit(1) },
);

sub app {
    my ($env)  = @_;
    my $name   = $env->{PATH_INFO} =~ s{\A/}{}r;
    my $answer = $answers{$name};
    return $answer->[1]->($env)   if $answer;
    return $deadly{$name}->($env) if $deadly{$name};
    if ($name eq 'socket') {
        print STDERR "has a socket\n" if $env->{'psgix.io'};
        tie %$env, 'TiedHash';
        return [];
    }
    return [ 200, [@plain], ["at your service $$"] ];
}

sub target { my ($name) = @_; return '/' . $name =~ s/([^A-Za-z0-9_])/sprintf '%%%02X', ord $1/ger }

for my $way (only_in_full('inline'), 'thread') {
    subtest $way => sub {
        my $server = TestServer->start(psgi => 1, app => \&app, access_log => undef, engine => $way);
        my $port   = $server->port;
        for my $name (sort keys %answers) {
            my $response = get($port, target($name));
            my $got      = !$response || !$response->{complete} ? 'cut' : $response->{status};
            is $got, $answers{$name}[0], $name;
            like get($port, '/')->{body}, qr/\Aat your service/, '... and the server goes on';
        }
        my $client = TestClient->new($port);
        $client->send(TestWebSocket::handshake('/socket'));
        ok $server->wait_for_log(qr/^has a socket$/m), 'a tied environment with psgix.io';
        like get($port, '/')->{body}, qr/\Aat your service/, '... and the server goes on';
        is $server->stop, 0, 'the server stops';
        unlike $server->log, qr/panic|segfault|Attempt to free|Bizarre|at xs|answered twice/,
            'nothing strange in the log';
    };
}

subtest 'in worker processes' => sub {
    my $server =
        TestServer->start(psgi => 1, app => \&app, access_log => undef, workers => 1, engine => 'inline');
    my $port = $server->port;
    for my $name (sort keys %deadly) {
        my ($before) = get($port, '/')->{body} =~ /(\d+)/;
        my $response = eval { get($port, target($name)) };
        ok !$response || !$response->{complete}, "$name: no answer";
        my $after;
        ok wait_for(sub {
            ($after) = ((eval { get($port, '/') } || {})->{body} // '') =~ /(\d+)/;
            $after;
            }),
            '... another worker takes its place';
        isnt $after, $before, '... which is a new one';
    }
    is $server->stop, 0, 'the server stops';
};

# Scalars of an environment serve the next one, unless somebody has changed or kept them.
subtest 'changes of environments by applications' => sub {
    my @kept;
    my %spoil = (
        '/values'  => sub { $_ = 'spoilt' for values %{ $_[0] } },
        '/targets' => sub {
            push @{ $_[0]{'psgix.cleanup.handlers'} }, sub { };
            push @kept, @{ $_[0] }{qw(psgix.cleanup.handlers psgix.informational)};
        },
        '/bless'  => sub { bless $_[0]{'psgix.cleanup.handlers'}, 'Spoilt' },
        '/weaken' => sub {
            Scalar::Util::weaken($_) for grep { ref } values %{ $_[0] };
        },
        '/keep'   => sub { push @kept, $_[0] },
        '/part'   => sub { push @kept, \$_ for values %{ $_[0] } },
        '/text'   => sub { my $copy = "$_"                  for values %{ $_[0] } },
        '/number' => sub { no warnings; my $sum; $sum += $_ for values %{ $_[0] } },
        '/tie'    => sub {
            tie $_, 'TiedScalar', sub { die "asked\n" }
                for values %{ $_[0] };
        },
        '/alias' => sub { ${ \$_[0]{REQUEST_METHOD} } .= 'S'; $_[0]{SERVER_PORT}++ },
    );
    my $app = sub {
        my ($env) = @_;
        my %shown = %$env;
        $shown{"$_ refers to"} = ref $env->{$_} for grep { ref $shown{$_} } keys %shown;
        $shown{handlers}       = scalar @{ $env->{'psgix.cleanup.handlers'} };
        delete @shown{ qw(REMOTE_PORT psgix.peregrine.queue_us HTTP_X_SPOIL),
            grep { ref $shown{$_} } keys %shown };
        my $text = join "\n", map { "$_: $shown{$_}" } sort keys %shown;
        $spoil{ $env->{HTTP_X_SPOIL} }->($env) if $env->{HTTP_X_SPOIL};
        return [ 200, [@plain], [$text] ];
    };
    my $server = TestServer->start(psgi => 1, app => $app, access_log => undef);
    my $client = TestClient->new($server->port);
    my $ask    = sub {
        $client->send("GET / HTTP/1.1\r\nHost: h\r\n" . ($_[0] ? "X-Spoil: $_[0]\r\n" : '') . "\r\n");
        return ($client->response || {})->{body};
    };
    my $fresh = $ask->();
    like $fresh, qr/^SERVER_PROTOCOL: HTTP.*^handlers: 0$/ms, 'an environment';
    for my $way (sort keys %spoil) {
        is $ask->($way), $fresh, "$way: its own";
        is $ask->(), $fresh, '... and the next one' for 1, 2;
    }
    is $server->stop, 0, 'the server stops';
};

# Requests without a body share a handle, unless an application has changed it.
subtest 'changes of psgi.input' => sub {
    my %spoil = (
        '/undef'  => sub { undef *{ $_[0] } },
        '/close'  => sub { CORE::close $_[0] },
        '/open'   => sub { open $_[0],     '<', $0 or die "$0: $!\n" },
        '/layers' => sub { binmode $_[0],  ':encoding(UTF-8)' },
        '/utf8'   => sub { binmode $_[0],  ':utf8' },
        '/bless'  => sub { bless $_[0],    'Spoilt' },
        '/tie'    => sub { tie *{ $_[0] }, 'TiedHandle', 'line' },
    );
    my $app = sub {
        my ($env) = @_;
        my $input = $env->{'psgi.input'};
        my $text  = join ' ', ref $input, PerlIO::get_layers($input), length(readline($input) // '');
        $spoil{ $env->{PATH_INFO} }->($input) if $env->{PATH_INFO} ne '/';
        return [ 200, [@plain], [$text] ];
    };
    my $server = TestServer->start(psgi => 1, app => $app, access_log => undef);
    is get($server->port, '/')->{body}, 'GLOB scalar 0', 'no input';
    for my $way (sort keys %spoil) {
        is get($server->port, $way)->{body}, 'GLOB scalar 0', "$way: not changed yet";
        is get($server->port, '/')->{body},  'GLOB scalar 0', '... nor for the next one';
    }
    is $server->stop, 0, 'the server stops';
};

# A loop of the server's must not be left by an application that has none.
subtest 'PAGI, too' => sub {
    my $app = sub {
        my ($scope) = @_;
        die "requests only\n" if $scope->{type} ne 'http';
        no warnings 'exiting';
        last;
    };
    my $server = TestServer->start(app => $app, access_log => undef);
    is get($server->port, '/')->{status}, 500, 'last' for 1, 2;
    is $server->stop, 0, 'the server stops';
};

done_testing;
