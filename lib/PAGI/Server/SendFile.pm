package PAGI::Server::SendFile;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::Answer;
use PAGI::Server::PSGIResponse;
use Peregrine::FileAnswer;
use Scalar::Util qw(reftype);

# Header fields of the application that the file's own fields replace.
my %REPLACED =
    map { $_ => 1 } qw(x-sendfile content-length content-range accept-ranges etag last-modified content-type);

# The answer with a file, and its headers as pairs. Dies if the application may not name that file.
sub _answer {
    my ($root, $path, $status, $pairs, %request) = @_;
    my $below = $path =~ m{\A/} ? $path : "$root/$path";
    die "X-Sendfile: '$path' is not below $root, which is what x_sendfile allows\n"
        if substr($below, 0, length($root) + 1) ne "$root/"
        || substr($below, length $root) =~ m{/\.\.(?:/|\z)};
    my ($type) = map { $_->[1] } grep { lc $_->[0] eq 'content-type' } @$pairs;
    my $plain  = $status == 200 && $request{method} =~ /\A(?:GET|HEAD)\z/;
    my $answer = Peregrine::FileAnswer->find(
        folder   => $root,
        path     => Peregrine::FileAnswer::encoded(substr $below, length $root),
        method   => $request{method} eq 'HEAD' ? 'HEAD'            : 'GET',
        headers  => $plain                     ? $request{headers} : [],
        dotfiles => 1,
        plain    => 1,
        defined $type ? (content_type => $type) : (),
    ) or return;
    my @headers =
        ((grep { !$REPLACED{ lc $_->[0] } } @$pairs), map { [ lc $_->[0], $_->[1] ] } $answer->headers);
    return ($answer, \@headers, $plain ? $answer->status : $status);
}

# ---- PAGI ----------------------------------------------------------------------------------------

# The beginning of the types of a response's events, by the type of the scope.
my %PREFIX = (http => 'http.response', sse => 'sse.http.response');

sub pagi {
    my ($class, $app, $root) = @_;
    $root =~ s{/+\z}{};
    return sub {
        my ($scope, $receive, $send, @more) = @_;
        my $prefix = $PREFIX{ $scope->{type} } or return $app->(@_);
        my $begin  = "$prefix.start";
        my ($start, $path);
        my $own = sub {
            my ($event) = @_;
            my $type = ref $event && reftype $event eq 'HASH' ? $event->{type} // '' : '';
            if ($type eq $begin && !$start) {
                $path = _named($event->{headers});
                return $send->(@_) if !defined $path;
                # The application may use its hash for another event before this one is sent.
                $start =
                    { %$event, headers => [ map { ref eq 'ARRAY' ? [@$_] : $_ } @{ $event->{headers} } ] };
                return Future->done;
            }
            return $send->(@_)  if !$start || $type !~ /\A\Q$prefix\E\.(?:body|trailers)\z/;
            return Future->done if $event->{more};
            my $begun = $start;
            undef $start;
            return _send($root, $path, $begun, $scope, $send);
        };
        return $app->($scope, $receive, $own, @more);
    };
}

# The file that headers name; undef: none.
sub _named {
    my ($headers) = @_;
    return if ref $headers ne 'ARRAY';
    my ($named) = grep { ref eq 'ARRAY' && lc($_->[0] // '') eq 'x-sendfile' } @$headers;
    return $named ? $named->[1] : undef;
}

sub _send {
    my ($root, $path, $start, $scope, $send) = @_;
    my ($answer, $headers, $status) =
        eval { _answer($root, $path, $start->{status}, $start->{headers}, %{$scope}{qw(method headers)}); };
    return Future->fail($@) if !$answer && $@;
    return $answer->send($send, status => $status, headers => $headers, prefix => $PREFIX{ $scope->{type} })
        if $answer;
    my @headers = ([ 'content-type', 'text/plain' ], [ 'content-length', 9 ]);
    return PAGI::Server::Answer::whole($scope, $send, 404, \@headers, 'Not Found');
}

# ---- PSGI ----------------------------------------------------------------------------------------

sub psgi {
    my ($class, $app, $root) = @_;
    $root =~ s{/+\z}{};
    return sub {
        my ($env) = @_;
        $env->{'plack.xsendfile.type'} //= 'X-Sendfile';
        return PAGI::Server::PSGIResponse::replaced(
            $app->($env),
            sub {
                my ($given) = @_;
                my $new = _replaced($root, $env, $given);
                # Writes to a response whose file is sent are ignored.
                return $new == $given ? $new : ($new, sub { return PAGI::Server::SendFile::Writer->new });
            }
        );
    };
}

# The response of a file in place of one that names it.
sub _replaced {
    my ($root,   $env,     $response) = @_;
    my ($status, $headers, $body)     = @$response;
    return $response if ref $headers ne 'ARRAY';
    my @pairs = map { [ @{$headers}[ 2 * $_, 2 * $_ + 1 ] ] } 0 .. @$headers / 2 - 1;
    my $path  = _named(\@pairs) // return $response;
    $body->close if PAGI::Server::PSGIResponse::body_can($body, 'close');
    my ($answer, $new, $new_status) = _answer(
        $root, $path, $status, \@pairs,
        method  => $env->{REQUEST_METHOD},
        headers => Peregrine::FileAnswer::headers_of($env)
    );
    return [ 404, [ 'content-type', 'text/plain', 'content-length', 9 ], ['Not Found'] ] if !$answer;
    return $answer->psgi(status => $new_status, headers => [ map { @$_ } @$new ]);
}

package PAGI::Server::SendFile::Writer;

sub new     { my ($class) = @_; return bless {}, $class }
sub write   { return }                                      ## no critic
sub close   { return }                                      ## no critic
sub poll_cb { return }

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::SendFile - sends a file that a response names (X-Sendfile)

=head1 SYNOPSIS

    pagi-server --x-sendfile /srv/files app.pl

    # in an application of PAGI
    await $send->({
        type    => 'http.response.start',
        status  => 200,
        headers => [ [ 'x-sendfile' => '/srv/files/report.pdf' ] ],
    });
    await $send->({ type => 'http.response.body', body => '' });

    # in one of PSGI
    return [ 200, [ 'X-Sendfile' => '/srv/files/report.pdf' ], [] ];

=head1 DESCRIPTION

Implements the option C<x_sendfile> of L<PAGI::Server>, which is off unless a directory is named. An
application that has found out who asks, and what for, leaves the file to the server: conditions, ranges,
C<HEAD> and the bytes are the engine's, as with L<PAGI::Server::Folders>. The header does not leave the
server.

=over

=item The file

An absolute path below that directory, or a relative one; as it is, not percent-encoded. Anything else makes
C<$send> fail, so that the client gets 500: it is a mistake of the application. A file that is not there is
answered with 404. Links do not lead out of the directory. Names that begin with a dot are allowed.

=item The response

A status of 200 to GET or HEAD becomes 206, 304, 412 or 416 where the request asks for that; with any other
status the file is sent whole. C<Content-Type> is the application's, or what the file's name says.
C<Content-Length>, C<ETag>, C<Last-Modified> and C<Accept-Ranges> are the file's. The content that the
application sends is dropped, and so are its trailers.

=item X-Accel-Redirect

is not looked at: it names an address within nginx, and is passed on to one that is in front. So is
C<X-Sendfile> if the option is off.

=item Plack::Middleware::XSendfile

works by itself: C<plack.xsendfile.type> is set.

=item Slow storage

The file is looked for and opened where the application runs: where its storage does not answer (NFS, FUSE),
the requests of that process wait, too. What is read of it is not waited for. For such files there are the
C<file> of an event of PAGI, which a thread opens, and L<PAGI::Server::Folders/Slow storage>.

=back

=head1 METHODS

=head2 pagi

    my $wrapped = PAGI::Server::SendFile->pagi($app, $directory);

=head2 psgi

    my $wrapped = PAGI::Server::SendFile->psgi($app, $directory);

=head1 SEE ALSO

L<PAGI::App::File>

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
