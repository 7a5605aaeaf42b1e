# plackup: its loaders and options, on both handlers and in each placement; where it is to listen under
# Server::Starter.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use IO::Socket::INET;
use OnlyInFull qw(crossed only_in_full);
use Test::More;
use TestClient qw(exchange get);
use TestServer;
use TestTools qw(content ended free_port program_path wait_for);

delete $ENV{PEREGRINE_ENGINE};
my $dir  = File::Temp->newdir;
my $file = "$dir/app.psgi";

sub write_app {
    my ($word) = @_;
    open my $out, '>', "$file.new" or die "$file.new: $!";
    print {$out} "my \$loader = \$\$;\n"
        . "sub { [ 200, [ 'Content-Type' => 'text/plain' ], [ \"$word \$loader \$\$ \$_[0]{SCRIPT_NAME}\" ] ] }\n";
    close $out or die "$file.new: $!";
    rename "$file.new", $file or die "$file: $!";
    return;
}
write_app('one');

my @PLACE = ('--listen', '127.0.0.1:0');

sub spawn {
    my (@arguments) = @_;
    return TestServer->spawn($^X, (map { "-I$_" } @INC), '-S', 'plackup', @arguments);
}

sub serve {
    my (@arguments) = @_;
    my $server      = spawn(@arguments, @PLACE, $file);
    my $port        = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    return ($server, $port);
}

sub said {
    my ($port) = @_;
    my $answer = eval { get($port, '/') };
    return $answer ? $answer->{body} : '';
}

my %WAYS = (
    'Peregrine'                   => [qw(-s Peregrine)],
    'Peregrine, workers'          => [qw(-s Peregrine --workers 1)],
    'Peregrine, thread'           => [qw(-s Peregrine --engine thread)],
    'Peregrine, clones'           => [qw(-s Peregrine --engine thread --workers 1)],
    'Peregrine, process'          => [qw(-s Peregrine --engine process --workers 1)],
    'Peregrine, process, preload' => [qw(-s Peregrine --engine process --workers 1 --preload_app 1)],
    'EVHTP'                       => [qw(-s EVHTP --max-workers 1)],
    'EVHTP without workers'       => [qw(-s EVHTP --max-workers 0)],
    'EVHTP, inline'               => [qw(-s EVHTP --max-workers 1 --engine inline)],
    'EVHTP, process'              => [qw(-s EVHTP --max-workers 1 --engine process)],
);

# A worker that loads the application runs in both modes; without workers the modes take turns.
# The handlers differ in their defaults alone, with which EVHTP runs here.
my @ways    = grep { !/\AEVHTP, / || only_in_full(1) } sort keys %WAYS;
my @with    = grep { "@{ $WAYS{$_} }" =~ /workers [1-9]/ } @ways;
my @without = grep { "@{ $WAYS{$_} }" !~ /workers [1-9]/ } @ways;
my @delayed = (
    (map { [ $_, 'production' ] } @with),
    (map { [ $_, 'development' ] } $with[-1], only_in_full(@with[ 0 .. $#with - 1 ])),
    crossed(\@without, [qw(production development)])
);
for my $case (@delayed) {
    my ($way, $mode) = @$case;
    my @way        = @{ $WAYS{$way} };
    my $has_worker = grep { $_ eq $way } @with;
    subtest "-L Delayed, $way, $mode" => sub {
        my ($server, $port) = serve(@way, '-E', $mode, '-L', 'Delayed');
        my ($loader, $process) = said($port) =~ /\Aone (\d+) (\d+) \z/ or return fail 'an answer';
        ok $loader == $process || "@way" =~ /preload/, 'the process that serves has loaded the application';
        is $process != $server->pid ? 1 : 0, $has_worker ? 1 : 0, '... which is a worker, if there are any';
        if ($has_worker && $mode eq 'production') {
            write_app('two');
            $server->signal('HUP');
            ok wait_for(sub { said($port) =~ /\Atwo/ }), 'HUP loads new code';
            write_app('one');
        }
        is $server->stop, 0, 'the server stops';
    };
}

# EVHTP and Peregrine have different defaults: ways that these lead to stand once in a default run.
for my $way (
    'EVHTP',
    'Peregrine',
    'Peregrine, thread',
    'Peregrine, process',
    only_in_full(
        'EVHTP without workers',
        'EVHTP, inline',
        'EVHTP, process',
        'Peregrine, clones',
        'Peregrine, process, preload',
        'Peregrine, workers'
    )
    )
{
    subtest "-L Shotgun, $way" => sub {
        my ($server, $port) = serve(@{ $WAYS{$way} }, '-E', 'production', '-L', 'Shotgun');
        like said($port), qr/\Aone (\d+) \1 \z/, 'a request';
        write_app('two');
        like said($port), qr/\Atwo /, 'new code at the next one';
        write_app('one');
        is $server->stop, 0, 'the server stops';
    };
}

for my $handler ('Peregrine', only_in_full('EVHTP')) {
    subtest "-r, $handler" => sub {
        # Without Linux::Inotify2 the times of the file tell, in seconds.
        utime time - 10, time - 10, $file or die "$file: $!";
        my $port   = free_port();
        my $server = spawn('-s', $handler, '-E', 'production', '-r', '--listen', "127.0.0.1:$port", $file);
        ok wait_for(sub { said($port) =~ /\Aone/ }), 'the server serves';
        write_app('two');
        ok wait_for(sub { said($port) =~ /\Atwo/ }, 60), '... new code when the file has changed';
        write_app('one');
        is $server->stop, 0, 'the server stops';
    };
}

for my $handler (qw(Peregrine EVHTP)) {
    subtest "-D, $handler" => sub {
        my $port   = free_port();
        my $status = ended(
            spawn('-s', $handler, '-E', 'production', '-D', '--listen', "127.0.0.1:$port", '-e',
                'sub { [ 200, [], [ "background $$ ", getppid ] ] }')->pid,
            30
        );
        is $status, 0, 'the command ends';
        my ($process, $parent) = said($port) =~ /\Abackground (\d+) (\d+)/ or return fail 'an answer';
        my $server = $handler eq 'EVHTP' ? $parent : $process;
        ok kill(TERM => $server),              '... when the server listens';
        ok wait_for(sub { !kill 0, $server }), '... which goes on until it is told to stop';
    };
}

for my $handler ('Peregrine', only_in_full('EVHTP')) {
    subtest "other options of plackup, $handler" => sub {
        my ($server, $port) =
            serve('-s', $handler, qw(-E production --path /sub -MPOSIX --access-log), "$dir/log");
        like get($port, '/sub/x')->{body}, qr{ /sub\z},                   '--path';
        like content("$dir/log"),          qr{"GET /sub/x HTTP/1.1" 200}, '--access-log';
        is $server->stop, 0, 'the server stops';
        $server = spawn('-s', $handler, '-E', 'production', '--socket', "$dir/socket", $file);
        ok wait_for(sub { -S "$dir/socket" && $server->log =~ /listening/ }), '--socket';
        is $server->stop, 0, 'the server stops';
        ($server, $port) = serve('-s', $handler, '-E', 'development', '--no-default-middleware', '-I', $dir);
        like said($port), qr/\Aone/, '--no-default-middleware';
        is $server->stop, 0, 'the server stops';
    };
    subtest "switches, $handler" => sub {
        my $server = spawn('-s', $handler, '-E', 'production', @PLACE, $file, '--http2');
        ok $server->wait_for_log(qr/http2: on/), '--http2 as the last word';
        is $server->stop, 0, 'the server stops';
        ($server) = serve('-s', $handler, '-E', 'production', '--http2=1', '--listen_backlog', 7);
        like $server->log, qr/http2: on/, '--http2=1';
        is $server->stop, 0, 'the server stops';
        $server =
            spawn('-s', $handler, '-E', 'production', @PLACE, $file, '--compress', '--x-sendfile', $dir);
        isnt $server->wait, 0, '--compress without a value';
        like $server->log,
            qr/Plack::Handler::Peregrine: option 'compress' must be 0 or 1, not '--x-sendfile' .*--compress=1/,
            '... says what to write';
        $server =
            spawn('-s', $handler, '-E', 'production', @PLACE, '--compress', '1', '--engine', 'proces', $file);
        isnt $server->wait, 0, 'a wrong value';
        like $server->log, qr/option 'engine' must be one of inline thread process, not 'proces'/,
            '... is named';
    };
}

subtest 'PEREGRINE_ENGINE' => sub {
    local $ENV{PEREGRINE_ENGINE} = 'process';
    for my $handler (only_in_full('Peregrine'), 'EVHTP') {
        my ($server, $port) = serve('-s', $handler, qw(-E production --workers 1));
        like $server->log, qr/engine: process/, "$handler: the engine";
        like said($port),  qr/\Aone/,           '... serves';
        is $server->stop, 0, '... and stops';
        ($server) = serve('-s', $handler, qw(-E production --workers 1 --engine inline));
        like $server->log, qr/engine: inline/, '... an option wins';
        is $server->stop, 0, '... and the server stops';
    }
    local $ENV{PEREGRINE_ENGINE} = 'proces';
    for my $handler (only_in_full('Peregrine'), 'EVHTP') {
        my $server = spawn('-s', $handler, @PLACE, $file);
        isnt $server->wait, 0, "$handler: a wrong one";
        like $server->log,
            qr/the environment variable PEREGRINE_ENGINE \(option 'engine'\) must be one of .*'proces'/,
            '... is refused';
    }
};

subtest 'HUP without workers' => sub {
    my ($server) = serve(qw(-s Peregrine -E production));
    $server->signal('HUP');
    ok $server->wait_for_log(qr/^Peregrine: SIGHUP: nothing to do.*start the server again/m),
        'names this server';
    unlike $server->log, qr/PAGI: |pagi-server/, '... and no other program';
    is $server->stop, 0, 'the server stops';
};

subtest 'HUP with workers' => sub {
    my ($server) = serve(qw(-s Peregrine -E production --workers 1));
    $server->signal('HUP');
    ok $server->wait_for_log(qr/^Peregrine: SIGHUP: .* use peregrine with .* or plackup's -L Delayed/m),
        'names what loads new code';
    is $server->stop, 0, 'the server stops';
};

subtest 'an application that exits' => sub {
    open my $out, '>', "$dir/exits.psgi" or die $!;
    print {$out} 'sub { exit 7 if $_[0]{PATH_INFO} eq "/exit"; [ 200, [], ["here"] ] }';
    close $out or die $!;
    for my $engine (qw(inline thread)) {
        my $server = spawn(qw(-s Peregrine -E production --engine), $engine, @PLACE, "$dir/exits.psgi");
        my $port   = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
        is get($port, '/')->{body}, 'here', "$engine: it serves";
        eval { get($port, '/exit') };
        is $server->wait, 7 << 8, '... ends with its status';
        like $server->log, qr/^Peregrine: the application has called exit at \S+ line \d+: the server ends/m,
            '... and says why';
    }
    my ($server) = serve(qw(-s Peregrine -E production));
    is $server->stop, 0, 'a stop';
    unlike $server->log, qr/called exit/, '... is no exit of the application';
};

my $starter = program_path('start_server');
for my $way (
    only_in_full([qw(-s Peregrine)], [qw(-s EVHTP --max-workers 1)]),
    [qw(-s Peregrine --engine process --workers 1)],
    [qw(-s Peregrine -L Delayed --workers 1)],
    [qw(-s Peregrine -r)]
    )
{
    subtest "Server::Starter, @$way" => sub {
        plan skip_all => 'needs start_server (Debian: libserver-starter-perl)' if !$starter;
        local $ENV{PERL5LIB} = join ':', @INC, $ENV{PERL5LIB} // ();
        # Under a harness, plackup's own port may be anybody's.
        my $taken  = IO::Socket::INET->new(LocalPort => 5000, Listen => 1, ReuseAddr => 1);
        my $port   = free_port();
        my $server = TestServer->spawn($starter, '--port', "127.0.0.1:$port", '--', 'plackup', @$way, '-E',
            'production', $file);
        ok wait_for(sub { said($port) =~ /\Aone/ }), 'the socket that it has inherited' or diag $server->log;
        unlike $server->log, qr/:5000\b|is closed/, '... and no other one';
        is $server->stop, 0, 'the server stops';
        undef $taken;
    };
}

done_testing;
