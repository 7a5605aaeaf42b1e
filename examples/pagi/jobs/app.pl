# A job runner: a form starts a job, the page shows its progress while it runs.
#
#     pagi-server examples/pagi/jobs/app.pl
#     open http://127.0.0.1:5000/
#
#     POST /jobs             starts one: 202 with its address
#     GET  /jobs/N           what is known of it, as JSON
#     GET  /jobs/N           with Accept: text/event-stream: the same as events until it ends
#
# A job runs in a process of its own (IO::Async::Process), so however busy it is, the server is not.
use strict;
use warnings;

use File::Basename qw(dirname);
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Async::Process;
use JSON::PP ();

my $RUNNING_MAX = 8;                                             # jobs at a time
my $KEPT        = 100;                                           # jobs that are remembered
my $json        = JSON::PP->new->canonical;
my $page        = read_file(dirname(__FILE__) . '/page.html');
my @work        = ($^X, dirname(__FILE__) . '/work.pl');
my $jobs        = 0;
my %job;    # by number: { number, percent, state, changed => Future }

async sub app {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} !~ /\A(?:http|sse)\z/;

    my ($method, $path) = @$scope{qw(method path)};
    my ($number) = $path =~ m{\A/jobs/(\d{1,15})\z};
    my $job = defined $number ? $job{$number} : undef;
    return await follow($job, $send) if $scope->{type} eq 'sse' && $job && $method eq 'GET';

    my ($prefix, $status, $type, $body, @more) = ('http', 404, 'text/plain', "Not found\n");
    ($status, $type, $body) = (200, 'text/html; charset=utf-8', $page) if $path eq '/' && $method eq 'GET';
    ($status, $type, $body) = (200, 'application/json',         $json->encode(public($job)))
        if $job && $method eq 'GET';
    ($status, $type, $body, @more) = start() if $path eq '/jobs' && $method eq 'POST';
    $prefix = 'sse.http' if $scope->{type} eq 'sse';    # no stream of events here: an ordinary answer
    await $send->({
        type    => "$prefix.response.start",
        status  => $status,
        headers => [ [ 'content-type', $type ], [ 'content-length', length $body ], @more ],
    });
    await $send->({ type => "$prefix.response.body", body => $body });
    return;
}

# Starts a job and answers the client that asked for it.
sub start {
    my $running = grep { $_->{state} eq 'running' } values %job;
    return (503, 'text/plain', "Too many jobs\n", [ 'retry-after', 1 ]) if $running >= $RUNNING_MAX;

    $jobs++;
    my $job = $job{$jobs} = { number => $jobs, percent => 0, state => 'running', changed => Future->new };
    delete $job{ $jobs - $KEPT };
    my $process = IO::Async::Process->new(
        command => \@work,
        stdout  => {
            on_read => sub {
                my (undef, $buffer) = @_;
                while ($$buffer =~ s/\A(.*)\n//) { update($job, percent => 0 + $1) }
                return 0;
            },
        },
        on_finish => sub {
            my (undef, $status) = @_;
            update($job, state => $status ? 'failed' : 'done');
        },
    );
    IO::Async::Loop->new->add($process);
    return (202, 'application/json', $json->encode(public($job)), [ 'location', "/jobs/$job->{number}" ]);
}

# Notes what has changed and wakes whoever follows the job.
sub update {
    my ($job, %news) = @_;
    %$job = (%$job, %news);
    my $changed = $job->{changed};
    $job->{changed} = Future->new;
    $changed->done;
    return;
}

async sub follow {
    my ($job, $send) = @_;
    await $send->({ type => 'sse.start',     status   => 200 });
    await $send->({ type => 'sse.keepalive', interval => 15 });
    while (1) {
        my $changed = $job->{changed};
        await $send->({ type => 'sse.send', event => $job->{state}, data => $json->encode(public($job)) });
        last if $job->{state} ne 'running';
        await $changed->without_cancel;
    }
    return;
}

sub public {
    my ($job) = @_;
    return { map { $_ => $job->{$_} } qw(number percent state) };
}

sub read_file {
    my ($path) = @_;
    open my $file, '<', $path or die "$path: $!\n";
    local $/;
    return readline $file;
}

\&app;
