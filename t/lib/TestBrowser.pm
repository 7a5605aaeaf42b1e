package TestBrowser;

# A headless Chromium for a test, driven by chromedriver over the W3C WebDriver protocol. Everything is
# bounded in time, and both programs end with the object.

use strict;
use warnings;

use Carp       qw(croak);
use File::Temp ();
use HTTP::Tiny;
use JSON::PP    qw(decode_json encode_json);
use POSIX       qw(WNOHANG);
use TestTools   qw(patience);
use Time::HiRes qw(sleep time);

my $PATIENCE = patience(60);    # seconds until a page must show what the test expects
my $OWNER    = $$;

sub is_there {
    return _program('chromedriver') && _program('chromium');
}

sub _program {
    my ($name) = @_;
    return grep { -x "$_/$name" } split /:/, $ENV{PATH};
}

# Starts a browser. `more`: further arguments of Chromium.
sub start {
    my ($class, @more) = @_;
    my $self = bless { http => HTTP::Tiny->new(timeout => $PATIENCE), folder => File::Temp->newdir }, $class;
    my $port = $self->_start_driver;
    $self->{base} = "http://127.0.0.1:$port";
    my @arguments = (
        qw(--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage),
        "--user-data-dir=$self->{folder}", @more
    );
    my $session = $self->_call(
        POST => '/session',
        {
            capabilities => {
                alwaysMatch => { browserName => 'chrome', 'goog:chromeOptions' => { args => \@arguments } }
            }
        }
    );
    $self->{session} = "/session/$session->{sessionId}";
    return $self;
}

# Starts chromedriver; returns its port. It picks one that is free for IPv6, and ends if that is in use for
# IPv4: then it is started again.
sub _start_driver {
    my ($self) = @_;
    for (1 .. 10) {
        $self->_fork_driver;
        my $port = $self->_driver_port;
        return $port if $port;
        last         if $self->_log !~ /IPv4 port not available/;
    }
    die 'chromedriver did not start: ' . $self->_log;
}

sub _fork_driver {
    my ($self) = @_;
    my $log    = $self->{log} = File::Temp->new;
    my $pid    = $self->{pid} = fork;
    die "fork: $!" if !defined $pid;
    if (!$pid) {
        setpgrp;
        open STDOUT, '>&', $log or die "stdout: $!";
        open STDERR, '>&', $log or die "stderr: $!";
        exec qw(chromedriver --port=0) or POSIX::_exit(127);
    }
    return;
}

sub _driver_port {
    my ($self) = @_;
    for (my $end = time + $PATIENCE; time < $end; sleep 0.02) {
        return $1 if $self->_log =~ /started successfully on port (\d+)/;
        last      if waitpid($self->{pid}, WNOHANG) == $self->{pid};
    }
    return;
}

sub _log {
    my ($self) = @_;
    open my $handle, '<', $self->{log}->filename or die "log: $!";
    local $/;
    return readline($handle) // '';
}

sub _call {
    my ($self, $method, $path, $body) = @_;
    my $response = $self->{http}->request(
        $method,
        $self->{base} . $path,
        {
            headers => { 'content-type' => 'application/json' },
            defined $body ? (content => encode_json($body)) : ()
        }
    );
    my $value = eval { decode_json($response->{content})->{value} };
    croak "$method $path: $response->{status} " . ($response->{content} // '') if !$response->{success};
    return $value;
}

# Opens a page in the present tab.
sub go {
    my ($self, $url) = @_;
    $self->_call(POST => "$self->{session}/url", { url => $url });
    return $self;
}

# Opens a new tab and turns to it; returns its handle, for `turn_to`.
sub new_tab {
    my ($self) = @_;
    my $tab = $self->_call(POST => "$self->{session}/window/new", { type => 'tab' })->{handle};
    $self->turn_to($tab);
    return $tab;
}

sub tab {
    my ($self) = @_;
    return $self->_call(GET => "$self->{session}/window");
}

sub turn_to {
    my ($self, $tab) = @_;
    $self->_call(POST => "$self->{session}/window", { handle => $tab });
    return $self;
}

# Runs the body of a JavaScript function in the current tab, and returns its value.
sub script {
    my ($self, $code, @arguments) = @_;
    return $self->_call(POST => "$self->{session}/execute/sync", { script => $code, args => \@arguments });
}

# The text of the first element that a CSS selector finds; undef if there is none.
sub text {
    my ($self, $selector) = @_;
    return $self->script('const e = document.querySelector(arguments[0]); return e && e.innerText',
        $selector);
}

# Waits until a JavaScript expression is true; returns its value, or nothing after $PATIENCE.
sub wait_for {
    my ($self, $expression, @arguments) = @_;
    for (my $end = time + $PATIENCE; time < $end; sleep 0.05) {
        my $value = $self->script("return $expression", @arguments);
        return $value if $value;
    }
    return;
}

# Waits until the text of an element matches; returns the text.
sub wait_for_text {
    my ($self, $selector, $pattern) = @_;
    my $text;
    for (my $end = time + $PATIENCE; time < $end; sleep 0.05) {
        $text = $self->text($selector);
        return $text if defined $text && $text =~ $pattern;
    }
    return $text;
}

# Types into an input field and submits the form that it belongs to.
sub submit {
    my ($self, $selector, $value) = @_;
    return $self->script(
        'const e = document.querySelector(arguments[0]); e.value = arguments[1]; e.form.requestSubmit()',
        $selector, $value);
}

sub DESTROY {
    my ($self) = @_;
    return if !$self->{pid} || $$ != $OWNER;
    local ($?, $@, $!);
    eval { $self->_call(DELETE => $self->{session}) } if $self->{session};
    for my $signal (qw(TERM KILL)) {
        kill $signal => -$self->{pid};
        for (1 .. 100) {
            return if waitpid($self->{pid}, WNOHANG) != 0;
            sleep 0.02;
        }
    }
    return;
}

1;
