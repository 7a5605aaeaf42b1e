package PAGI::Server::ErrorPage;

use strict;
use warnings;

our $VERSION = '0.003000';

use Digest::SHA qw(sha256_base64);
use PAGI::Server::Exception;
use PAGI::Server::RequestName;
use PAGI::Server::StackTrace;

use constant {
    ERROR_MAX => 10_000,    # characters of an exception
    FRAME_MAX => 400,
};

my $STYLE = <<'CSS';
body { margin: 2em auto; max-width: 60em; padding: 0 1em; font: 16px/1.5 sans-serif }
body { color: #222; background: #fff }
h1 { font-size: 1.4em } h2 { font-size: 1.1em } pre, code { font: 14px/1.5 monospace }
pre { padding: 1em; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere }
pre { background: #fbeaea; border-left: 4px solid #b00 }
li, p { overflow-wrap: anywhere } .note { color: #666; font-size: .9em }
CSS
my $POLICY =
      "default-src 'none'; style-src 'sha256-"
    . sha256_base64($STYLE)
    . "='; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
my $NOTE = 'This page is shown in the mode development only (PAGI_ENV, pagi-server -E).';

sub new {
    my ($class) = @_;
    return bless { traces => PAGI::Server::StackTrace->watch }, $class;
}

sub page {
    my ($self, $exception, $about) = @_;
    my ($stage, $scope) = @$about;
    my $died  = defined $exception;
    my %facts = (
        title => $died ? "The application died $stage" : "The application ended $stage",
        error => _bounded(
            $died ? PAGI::Server::Exception::text($exception) : 'Was an `await` forgotten?', ERROR_MAX
        ),
        request => PAGI::Server::RequestName::text(PAGI::Server::RequestName::of(@{$about}[ 1 .. 3 ])),
        frames  => [ map { _bounded($_, FRAME_MAX) } $died ? $self->{traces}->of($exception) : () ],
    );
    my $html = _wants_html($scope);
    my $text = $html ? _html(\%facts) : _text(\%facts);
    utf8::encode($text);
    return [
        [
            [ 'content-type',            ($html ? 'text/html' : 'text/plain') . '; charset=utf-8' ],
            [ 'cache-control',           'no-store' ],
            [ 'content-security-policy', $POLICY ],
            [ 'x-content-type-options',  'nosniff' ],
        ],
        $text,
    ];
}

# Whether the client's Accept names HTML. A client that accepts anything (curl) shows text in a terminal.
sub _wants_html {
    my ($scope) = @_;
    my $headers = ref $scope eq 'HASH' ? $scope->{headers} : undef;
    for my $range (map { split /,/ } PAGI::Server::RequestName::sent($headers, 'accept')) {
        my ($type, @parameters) = map { s/\A\s+|\s+\z//gr } split /;/, lc $range;
        return 1 if ($type // '') eq 'text/html' && !grep { /\Aq\s*=\s*0(?:\.0*)?\z/ } @parameters;
    }
    return 0;
}

sub _bounded {
    my ($text, $max) = @_;
    $text = _characters($text);
    return length $text > $max ? substr($text, 0, $max) . '...' : $text;
}

# The characters of an exception, which may be bytes. Controls, and characters that turn text around, are
# shown by their numbers.
sub _characters {
    my ($text) = @_;
    utf8::decode($text) if !utf8::is_utf8($text);
    $text =~ s/\s+\z//;
    $text =~ s/([^\t\n\P{C}])/sprintf '\\x{%02x}', ord $1/ge;
    return $text;
}

sub _text {
    my ($facts) = @_;
    my @lines = ($facts->{title}, '', $facts->{error}, '');
    push @lines, $facts->{request}, '' if length $facts->{request};
    push @lines, (map { "    $_" } @{ $facts->{frames} }), '' if @{ $facts->{frames} };
    return join "\n", @lines, $NOTE, '';
}

my %ENTITY = ('&' => '&amp;', '<' => '&lt;', '>' => '&gt;', '"' => '&quot;', q{'} => '&#39;');

sub _escaped {
    my ($text) = @_;
    return $text =~ s/([&<>"'])/$ENTITY{$1}/gr;
}

sub _html {
    my ($facts) = @_;
    my ($title, $error, $request) = map { _escaped($_) } @{$facts}{qw(title error request)};
    my $frames = join '', map { '<li><code>' . _escaped($_) . "</code></li>\n" } @{ $facts->{frames} };
    my $about  = length $request ? "<p><code>$request</code></p>\n"             : '';
    my $trace  = length $frames  ? "<h2>Stack trace</h2>\n<ol>\n$frames</ol>\n" : '';
    return <<"HTML";
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>500: $title</title>
<style>$STYLE</style>
</head>
<body>
<h1>$title</h1>
<pre>$error</pre>
$about$trace<p class="note">$NOTE</p>
</body>
</html>
HTML
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::ErrorPage - what whoever writes an application sees when it dies

=head1 SYNOPSIS

    my $pages = PAGI::Server::ErrorPage->new;
    my $about = [ 'before its response had started', $scope, 17, 3 ];
    my ($headers, $body) = @{ $pages->page($exception, $about) };

=head1 DESCRIPTION

In the mode development, an application that ends without having started a response is answered with 500 and a
page: the exception, the request and, if L<PAGI::Server::StackTrace> knows it, who called whom. It is HTML for
clients that name C<text/html> in C<Accept>, plain text for others. Everything in it is bounded and escaped;
it has no scripts, and its policy (C<Content-Security-Policy>) allows none and nothing from elsewhere.

=head1 METHODS

=head2 new

    my $pages = PAGI::Server::ErrorPage->new;

From now on stack traces are noted, until the object goes.

=head2 page

    my ($headers, $body) = @{ $pages->page($exception, [ $stage, $scope, $connection, $request ]) };

The fields and the body, in UTF-8, of a response about an exception, or about an application that ended
without one (undef).

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
