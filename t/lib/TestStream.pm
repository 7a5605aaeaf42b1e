package TestStream;

# A client of event streams: reads messages as the HTML standard says, one at a time, and finds out how a
# stream ends.

use strict;
use warnings;

use parent 'TestClient';

# Connects and sends a request for a stream. Options: method, body, version, fields (lines), and those of
# TestClient.
sub open {
    my ($class, $port, $target, %options) = @_;
    my $method = $options{method} || ($options{body} ? 'POST' : 'GET');
    my @lines  = (
        "$method $target HTTP/" . ($options{version} || '1.1'),
        "Host: localhost:$port",
        'Accept: text/event-stream'
    );
    push @lines, 'Content-Length: ' . length $options{body} if defined $options{body};
    push @lines, @{ $options{fields} || [] };
    my $self = $class->new($port, %options);
    $self->{text} = '';
    return $self->send(join "\r\n", @lines, '', $options{body} // '');
}

# The head of the response: status and fields.
sub head {
    my ($self) = @_;
    return $self->{head} if $self->{head};
    my $text = $self->_until(qr/\r\n\r\n/) // return;
    my ($status) = $text =~ m{\AHTTP/1\.1 (\d{3}) };
    my ($fields, $header) = TestClient::_fields($text =~ s/\A[^\n]*\n//r);
    $self->{chunked} = ($header->{'transfer-encoding'} || '') eq 'chunked';
    return $self->{head} = { status => $status, fields => $fields, header => $header };
}

# Adds the next piece of the stream to the text. False at the end of the stream or when the time is up.
sub _more {
    my ($self) = @_;
    $self->head or return 0;
    return 0 if $self->{terminated};
    if (!$self->{chunked}) {
        if (!length $self->{buffer}) { $self->_fill(Time::HiRes::time() + $self->{timeout}) or return 0 }
        $self->{text} .= delete $self->{buffer};
        $self->{buffer} = '';
        return 1;
    }
    my $line  = $self->_until(qr/\r\n/) // return 0;
    my $size  = hex substr $line, 0, -2;
    my $chunk = $self->_bytes($size + 2) // return 0;
    $self->{terminated} = 1 if $size == 0;
    $self->{text} .= substr $chunk, 0, -2;
    return !$self->{terminated};
}

# The next block of lines, with its empty line; undef at the end.
sub block {
    my ($self) = @_;
    while ($self->{text} !~ /\n\n/) { $self->_more or return }
    my ($block) = $self->{text} =~ s/\A(.*?\n\n)//s ? $1 : ();
    return $block;
}

# The next block as a client reads it: a hash with event, data, id, retry, comments.
sub message {
    my ($self) = @_;
    my $block = $self->block // return;
    my (%message, @data);
    for my $line (split /\r\n|\n|\r/, $block) {
        my ($name, $value) = $line =~ /\A([^:]*)(?:: ?(.*))?\z/s or die "not a line of a stream: $line";
        if    ($name eq '')     { push @{ $message{comments} }, $value }
        elsif ($name eq 'data') { push @data, $value }
        else                    { $message{$name} = $value }
    }
    $message{data} = join "\n", @data if @data;
    return \%message;
}

# Reads to the end of the stream; false if it does not end. The connection may go on.
sub is_complete {
    my ($self) = @_;
    1 while $self->_more;
    return $self->{terminated};
}

# The end of the stream: 'terminated' with the last chunk and the end of the connection, 'cut' without the
# last chunk, 'open' if the stream does not end.
sub ending {
    my ($self) = @_;
    1 while $self->_more;
    my $rest = $self->rest;
    return 'open' if !defined $rest;
    return $self->{terminated} && $rest eq '' ? 'terminated' : 'cut';
}

1;
