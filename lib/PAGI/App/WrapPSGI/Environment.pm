package PAGI::App::WrapPSGI::Environment;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Temp ();
use Future::AsyncAwait;

# Bytes of a body that are kept in memory at most; a longer one goes to a file.
use constant MEMORY_MAX => 65_536;

# The whole body, as bytes or in a file; undef if the client leaves before its end.
async sub gather {
    my ($receive) = @_;
    my %body = (bytes => '', length => 0);
    while (1) {
        my $event = await $receive->();
        return if $event->{type} !~ /\.request\z/;
        my $bytes = $event->{body} // '';
        $body{length} += length $bytes;
        if (!$body{file} && $body{length} > MEMORY_MAX) {
            $body{file} = File::Temp->new(TEMPLATE => 'wrap-psgi-XXXXXXXX', TMPDIR => 1);
            binmode $body{file};
            $bytes = delete($body{bytes}) . $bytes;
        }
        if ($body{file}) { _keep($body{file}, $bytes) }
        else             { $body{bytes} .= $bytes }
        last if !$event->{more};
    }
    $body{file}->flush or die "cannot keep the request's body: $!\n" if $body{file};
    return \%body;
}

sub _keep {
    my ($file, $bytes) = @_;
    local ($\, $,);    # which an application may have set for its own output
    print {$file} $bytes or die "cannot keep the request's body: $!\n";
    return;
}

# The part of the environment that is plain data. A field name with an underscore would be taken for one with
# a dash, and HTTP_PROXY for a setting of the process; both are left out.
sub of {
    my ($scope, $length) = @_;
    my %env = (
        REQUEST_METHOD    => $scope->{method},
        SCRIPT_NAME       => _bytes($scope->{root_path} // ''),
        PATH_INFO         => _bytes($scope->{path}),
        REQUEST_URI       => _uri($scope),
        QUERY_STRING      => $scope->{query_string} // '',
        SERVER_NAME       => 'localhost',
        SERVER_PORT       => 0,
        SERVER_PROTOCOL   => "HTTP/$scope->{http_version}",
        'psgi.url_scheme' => $scope->{scheme} // 'http',
    );
    @env{qw(REMOTE_ADDR REMOTE_PORT)} = @{ $scope->{client} } if $scope->{client};
    my ($name, $port) = @{ $scope->{server} || [] };
    @env{qw(SERVER_NAME SERVER_PORT)} = ($name, $port) if defined $port;
    for my $header (@{ $scope->{headers} }) {
        my ($field, $value) = @$header;
        next if $field =~ /_|\A(?:proxy|transfer-encoding|content-length)\z/;
        my $key   = $field eq 'content-type' ? 'CONTENT_TYPE' : 'HTTP_' . uc $field =~ tr/-/_/r;
        my $comma = $key eq 'HTTP_COOKIE'    ? '; ' : ', ';
        $env{$key} = exists $env{$key} ? "$env{$key}$comma$value" : $value;
    }
    my $has_body = $length || grep { $_->[0] eq 'content-length' } @{ $scope->{headers} };
    $env{CONTENT_LENGTH} = $length if $has_body;
    return \%env;
}

sub _uri {
    my ($scope) = @_;
    my $path = $scope->{raw_path};
    if (!defined $path) {
        $path = _bytes(($scope->{root_path} // '') . $scope->{path});
        $path =~ s{([^A-Za-z0-9\-._~!\$&'()*+,;=:\@/])}{sprintf '%%%02X', ord $1}ge;
    }
    return length($scope->{query_string} // '') ? "$path?$scope->{query_string}" : $path;
}

sub _bytes {
    my ($text) = @_;
    utf8::encode($text) if utf8::is_utf8($text);
    return $text;
}

# Completes an environment in the process where the application runs.
sub complete {
    my ($env, $body, %more) = @_;
    my $file   = $body->{file} // $body->{path};
    my $source = defined $file ? "$file" : \$body->{bytes};
    open my $input, '<:raw', $source or die "cannot read the request's body: $!\n";
    return {
        %$env,
        'psgi.version'           => [ 1, 1 ],
        'psgi.input'             => $input,
        'psgi.errors'            => \*STDERR,
        'psgi.multithread'       => !!0,
        'psgi.multiprocess'      => !!0,
        'psgi.run_once'          => !!0,
        'psgi.nonblocking'       => !!0,
        'psgi.streaming'         => !!1,
        'psgix.input.buffered'   => !!1,
        'psgix.cleanup'          => !!1,
        'psgix.cleanup.handlers' => [],
        'psgix.harakiri'         => !!0,
        %more,
    };
}

# Runs the handlers of psgix.cleanup after a response.
sub clean_up {
    my ($env) = @_;
    for my $handler (@{ $env->{'psgix.cleanup.handlers'} || [] }) {
        eval { $handler->($env); 1 } or warn "PAGI::App::WrapPSGI: a cleanup handler died: $@";
    }
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::App::WrapPSGI::Environment - a PAGI request as PSGI's environment

=head1 DESCRIPTION

Part of L<PAGI::App::WrapPSGI>.

=head1 FUNCTIONS

=head2 gather

    my $body = await gather($receive);

The whole body: a hash reference with C<length>, and C<bytes> or C<file>. Undef if the client leaves.

=head2 of

    my $env = of($scope, $length);

What of the environment can go to another process.

=head2 complete

    my $whole = complete($env, $body, 'psgi.nonblocking' => 1);

All of it, where the application runs. C<path> of the body may stand for C<file>.

=head2 clean_up

    clean_up($env);

Calls C<psgix.cleanup.handlers>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
