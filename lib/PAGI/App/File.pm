package PAGI::App::File;

use strict;
use warnings;

our $VERSION = '0.003000';

use Carp       qw(croak);
use File::Spec ();
use Future::AsyncAwait;
use PAGI::Server::Answer;
use Peregrine::FileAnswer;

my %KNOWN = map { $_ => 1 } qw(root default_type index handle_ranges);

sub new {
    my ($class, %options) = @_;
    delete $options{_caller_file};    # loaders give this one
    my $self    = bless { index => [qw(index.html index.htm)], handle_ranges => 1, %options }, $class;
    my @unknown = grep { !$self->_options->{$_} } sort keys %options;
    croak "$class: there is no option '$unknown[0]'"      if @unknown;
    croak "$class: root is required"                      if !defined $self->{root} || !length $self->{root};
    croak "$class: there is no directory '$self->{root}'" if !-d $self->{root};
    $self->{root}  = File::Spec->rel2abs($self->{root});
    $self->{index} = [ $self->{index} ] if !ref $self->{index};
    return $self;
}

sub _options { return \%KNOWN }

sub to_app {
    my ($self) = @_;
    return async sub {
        my ($scope, $receive, $send) = @_;
        die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';
        my $path = $scope->{path};
        utf8::encode($path);
        my ($last) = ($scope->{raw_path} // '') =~ m{([^/?]*)\z};
        my $answer = $self->_answer(
            method  => $scope->{method},
            path    => Peregrine::FileAnswer::encoded($path),
            query   => $scope->{query_string},
            headers => $scope->{headers},
            last    => $last,
        );
        return await $answer->send($send) if ref $answer ne 'ARRAY';
        return await PAGI::Server::Answer::whole($scope, $send, @$answer);
    };
}

sub to_psgi_app {
    my ($self) = @_;
    return sub {
        my ($env)  = @_;
        my ($last) = ($env->{REQUEST_URI} // '') =~ m{([^/?]*)(?:\?.*)?\z};
        my $answer = $self->_answer(
            method  => $env->{REQUEST_METHOD},
            path    => Peregrine::FileAnswer::encoded($env->{PATH_INFO}),
            query   => $env->{QUERY_STRING},
            headers => Peregrine::FileAnswer::headers_of($env),
            accept  => $env->{HTTP_ACCEPT},
            last    => $last,
        );
        return $answer->psgi if ref $answer ne 'ARRAY';
        my ($status, $headers, $body) = @$answer;
        return [ $status, [ map { @$_ } @$headers ], [ $env->{REQUEST_METHOD} eq 'HEAD' ? () : $body ] ];
    };
}

# A Peregrine::FileAnswer, or a list of status, headers and body.
sub _answer {
    my ($self, %request) = @_;
    return _plain(405, 'Method Not Allowed', [ allow => 'GET, HEAD' ])
        if $request{method} !~ /\A(?:GET|HEAD)\z/;
    # The request is for the application's mount, without the slash at its end: the client is sent there.
    return _plain(301, 'Moved Permanently', [ location => "./$request{last}/" ])
        if $request{path} =~ m{\A/?\z} && length $request{last};
    $request{path} = '/' if !length $request{path};
    return $self->_found(%request) || $self->_missing(%request);
}

sub _found {
    my ($self, %request) = @_;
    my @headers = @{ $request{headers} || [] };
    @headers = grep { lc $_->[0] ne 'range' } @headers if !$self->{handle_ranges};
    my %question = (
        folder => $self->{root},
        (map { defined $request{$_} ? ($_ => $request{$_}) : () } qw(method query)),
        headers => \@headers,
        $self->{show_hidden}          ? (dotfiles     => 1)                     : (),
        defined $self->{default_type} ? (default_type => $self->{default_type}) : (),
    );
    my $path = $request{path};
    my ($index, @others) = @{ $self->{index} };
    my $answer =
        Peregrine::FileAnswer->find(%question, path => $path, defined $index ? (index => $index) : ());
    return $answer if $answer || $path !~ m{/\z};

    for my $name (map { Peregrine::FileAnswer::encoded($_) } @others) {
        $answer = Peregrine::FileAnswer->find(%question, path => "$path$name") or next;
        return $answer;
    }
    return;
}

sub _missing { return _plain(404, 'Not Found') }

sub _plain {
    my ($status, $text, @headers) = @_;
    return [
        $status, [ [ 'content-type' => 'text/plain' ], [ 'content-length' => length $text ], @headers ], $text
    ];
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::App::File - serves the files of a directory

=head1 SYNOPSIS

    use PAGI::App::File;

    my $app = PAGI::App::File->new(root => '/var/www/static')->to_app;

    # pagi-server PAGI::App::File root=/var/www/static

    # the same for PSGI
    my $psgi = PAGI::App::File->new(root => '/var/www/static')->to_psgi_app;

=head1 DESCRIPTION

Serves files with validators, conditions, ranges and precompressed siblings: the engine says what to answer,
see L<PAGI::Server::Folders/What is served>, and sends the bytes. The application only adds what belongs to
it: a place in a tree of applications, middleware, a listing (L<PAGI::App::Directory>). If you need none of
that, the option C<static> of L<PAGI::Server> costs less: it runs no Perl code.

Names and options are those of the module in the distribution PAGI-Tools; who has installed that keeps it.

=head1 METHODS

=head2 new

=over

=item root

The directory. Required. Nothing outside of it is served, whatever paths and symbolic links say.

=item index

Names of files that answer for their directory: C<index.html> and C<index.htm>. An array reference.

=item default_type

C<Content-Type> of files whose extension says nothing: C<application/octet-stream>.

=item handle_ranges

0: C<Range> is ignored, for a proxy in front that cuts ranges out itself.

=back

=head2 to_app

The application, for PAGI: HTTP only. Requests for missing files are answered with 404, methods other than
GET and HEAD with 405.

=head2 to_psgi_app

Like C<to_app>, for PSGI, in C<peregrine> and C<plackup -s Peregrine>.

=head1 SEE ALSO

L<PAGI::App::Directory>, L<PAGI::Server::Folders>

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
