# --env-file: what a file may say, what wins, and what new workers and new programs make of a changed one.
use strict;
use warnings;

use lib 't/lib';
use PAGI::Server::EnvFile;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(content wait_for);
use TestWorkers qw(directory is_gone pid_in stop_master write_file);

my $dir = directory();

my $app = write_file('app.pl', <<'PERL');
use strict;
use warnings;
use Future::AsyncAwait;
my %loaded = %ENV;
async sub app {
    my ($scope, $receive, $send) = @_;
    die "unsupported\n" if $scope->{type} ne 'http';
    my $text = join ' ', map { $_ // 'none' } @loaded{qw(JT_ONE JT_TWO JT_SHELL PAGI_ENV)};
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body', body => $text });
}
\&app;
PERL

sub problem_of {
    my ($text) = @_;
    my $path = write_file('wrong.env', $text);
    return '' if eval { PAGI::Server::EnvFile->apply($path); 1 };
    return ref $@ ? ${$@} =~ s{\Q$dir\E/}{}gr : "no reference: $@";
}

subtest 'values of a file' => sub {
    my $path = write_file('all.env', <<'ENV' =~ s/<CR>/\r/r);
# a comment

PLAIN=some words # and a comment
export EXPORTED=1<CR>
  INDENTED=a#b
EMPTY=
SINGLE='$HOME "x" \n # all of it' # but not this
DOUBLE="a \"b\"\n\t\\ # \$HOME $HOME"
EQUAL=a=b
ENV
    is_deeply(
        PAGI::Server::EnvFile->read($path),
        {
            PLAIN    => 'some words',
            EXPORTED => '1',
            INDENTED => 'a#b',
            EMPTY    => '',
            SINGLE   => '$HOME "x" \n # all of it',
            DOUBLE   => qq{a "b"\n\t\\ # \$HOME \$HOME},
            EQUAL    => 'a=b',
        },
        'comments, export, quotes'
    );
};

subtest 'files that are refused' => sub {
    my %problems = (
        "A=1\nB 2\n"     => q{wrong.env line 2: expected NAME=value, not 'B 2'},
        "1A=1\n"         => q{wrong.env line 1: expected NAME=value, not '1A=1'},
        "JT_ONE=1\nA='1" => q{wrong.env line 2: the quotes of A are not closed at the end of the line},
        qq{A="1" 2\n}    => q{wrong.env line 1: the quotes of A are not closed at the end of the line},
        "A=\0\n"         => q{wrong.env line 1: a value has no zero byte},
    );
    is(problem_of($_), "option --env-file: $problems{$_}", $problems{$_}) for sort keys %problems;
    is($ENV{JT_ONE},   undef,                              'nothing has changed then');
    my ($status, undef, $error) = TestServer->finish('--env-file', "$dir/absent", $app);
    is($status, 2, 'a file that is not there ends the start');
    like($error, qr{option --env-file: cannot read '\Q$dir\E/absent': No such file}, '... and is named');
};

subtest 'the order of files and environment' => sub {
    local %ENV = (%ENV, JT_SHELL => 'shell');
    delete @ENV{qw(JT_ONE JT_TWO)};
    my $first  = write_file('first.env',  "JT_ONE=1\nJT_TWO=1\nJT_SHELL=file\n");
    my $second = write_file('second.env', "JT_TWO=2\n");
    PAGI::Server::EnvFile->apply($first, $second);
    is("@ENV{qw(JT_ONE JT_TWO JT_SHELL)}", '1 2 shell', 'the environment, then the last file');
    write_file('first.env', "JT_TWO=3\n");
    PAGI::Server::EnvFile->apply($first);
    is($ENV{JT_TWO}, 3,     'read again: what has changed is taken');
    is($ENV{JT_ONE}, undef, '... and what is not there any more is gone');
    ok(!exists $ENV{PEREGRINE_ENV_FILE_NAMES},
        'another server that is started here has the variables as any others');
    PAGI::Server::EnvFile->apply;
    is($ENV{JT_TWO}, undef, 'without files all are gone');
};

subtest 'workers and programs that come later' => sub {
    local %ENV = (%ENV, JT_SHELL => 'shell');
    delete @ENV{qw(JT_ONE JT_TWO PAGI_ENV)};
    my $file   = write_file('app.env', "JT_ONE=old\nJT_TWO=old\nJT_SHELL=file\nPAGI_ENV=none\n");
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC), 'bin/pagi-server', qw(--port 0 --workers 1),
        '--env-file',  $file,          '--pid', "$dir/app.pid",
        '--error-log', "$dir/app.log", $app
    );
    my $port;
    wait_for(sub { ($port) = content("$dir/app.log") =~ m{listening on http://\S+:(\d+)/} }, 30)
        or die 'the server does not start: ' . $server->log;
    my $text = sub { return get($port, '/')->{body} };
    is($text->(), 'old old shell none', 'the application has them, and the mode is the one of the file');
    write_file('app.env', "JT_ONE=new\nPAGI_ENV=none\n");
    $server->signal('HUP');
    ok(wait_for(sub { $text->() eq 'new none shell none' }), 'HUP: new workers read the file again')
        or diag $text->();
    my $old = pid_in('app.pid');
    write_file('app.env', "JT_TWO=newer\nPAGI_ENV=none\n");
    $server->signal('USR2');
    ok(wait_for(sub { my $new = pid_in('app.pid'); $new && $new != $old && is_gone($old) }, 30),
        'USR2: a new program');
    is($text->(),     'none newer shell none', '... reads it again as well');
    is($server->wait, 0,                       '... and the old one has ended well');
    ok(stop_master('app.pid'), 'the server stops');
};

done_testing;
