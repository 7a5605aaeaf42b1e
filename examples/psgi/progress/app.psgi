# A progress bar that holds no worker: the page's event stream is left to the engine (GRIP), and the work goes
# on in a worker that has answered already. Any number of pages may watch, with two workers.
#
#     peregrine --engine process --workers 2 --channels --grip app. examples/psgi/progress/app.psgi
#     open http://127.0.0.1:5000/
use strict;
use warnings;

use Peregrine::Publisher;
use Time::HiRes qw(sleep);

my $publisher;

sub tell_all {
    my ($text) = @_;
    $publisher ||= Peregrine::Publisher->of_server;
    return $publisher->publish('app.progress', $text);
}

# After the response: the client waits for nothing, and this worker for nobody.
sub work {
    for my $percent (1 .. 100) {
        sleep 0.02;
        tell_all($percent);
    }
    return;
}

my $page = <<'HTML';
<!DOCTYPE html>
<html lang="en">
<title>Progress</title>
<p>
    <button onclick="fetch('/work', { method: 'POST' })">Begin</button>
    <progress max="100" value="0"></progress>
</p>
<script>
    const bar = document.querySelector('progress');
    new EventSource('/progress').onmessage = (event) => { bar.value = event.data; };
</script>
HTML

my %answers = (
    'GET /'      => sub { return [ 200, [ 'Content-Type' => 'text/html; charset=utf-8' ], [$page] ] },
    'POST /work' => sub {
        my ($env) = @_;
        push @{ $env->{'psgix.cleanup.handlers'} }, \&work;
        return [ 202, [ 'Content-Type' => 'text/plain' ], ["It has begun.\n"] ];
    },
    'GET /progress' => sub {
        return [
            200,
            [
                'Content-Type'    => 'text/event-stream',
                'Cache-Control'   => 'no-store',
                'Grip-Hold'       => 'stream',
                'Grip-Channel'    => 'app.progress; prev-id=client',
                'Grip-Keep-Alive' => ':\n\n; format=cstring; timeout=20',
            ],
            ["event: open\ndata: stays open without a worker\n\n"]
        ];
    },
);

sub {
    my ($env) = @_;
    my $answer = $answers{"$env->{REQUEST_METHOD} $env->{PATH_INFO}"};
    return $answer ? $answer->($env) : [ 404, [ 'Content-Type' => 'text/plain' ], ["Not found\n"] ];
};
