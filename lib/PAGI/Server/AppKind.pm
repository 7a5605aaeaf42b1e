package PAGI::Server::AppKind;

use strict;
use warnings;

our $VERSION = '0.003000';

use Scalar::Util qw(blessed reftype);

use constant PSGI => 'a PSGI application';

# Files of frameworks for other servers, and the kind of an application that loads them; the most specific
# first.
my @FRAMEWORKS = (
    [ 'Mojolicious.pm'     => 'a Mojolicious application' ],
    [ 'Dancer2.pm'         => 'a Dancer2 application' ],
    [ 'Dancer.pm'          => 'a Dancer application' ],
    [ 'Catalyst.pm'        => 'a Catalyst application' ],
    [ 'Plack/Builder.pm'   => PSGI ],
    [ 'Plack/Component.pm' => PSGI ],
    [ 'Plack/Request.pm'   => PSGI ],
);

# Lines of an application's text that load a framework, for applications that were not loaded yet.
my $FRAMEWORK_USE = qr/(?:^|;)\s*(?:use|require)\s+(Mojolicious|Dancer2?|Catalyst|Plack)\b/m;

# Words that only occur in the text of a PAGI application, and words of PSGI applications.
my $PAGI_WORDS = qr/\bPAGI\b|\bhttp\.response\b|\$send\b|\basync\s+sub\b/;
my $PSGI_WORDS = qr/\bpsgi\b|\bPATH_INFO\b|\$env\b|\[\s*['"]?[1-5][0-9][0-9]['"]?\s*(?:,|=>)\s*\[/;

# Whether a text is a script of Mojolicious that gives its application to its loader. Scripts that choose
# another server themselves are no such.
sub is_mojolicious {
    my ($text) = @_;
    return 0 if $text =~ /\bPAGI\b|\bMojo::Server::(?:PSGI|Peregrine)\b|\bPlack::/;
    return $text =~ /(?:^|;)\s*use\s+Mojolicious::Lite\b|\bMojolicious::Commands\b.*\bstart_app\b/ms ? 1 : 0;
}

sub of_answer {
    my ($value) = @_;
    return      if !ref $value || blessed $value;
    return PSGI if reftype($value) eq 'CODE';                   # psgi.streaming
    return      if reftype($value) ne 'ARRAY' || @$value < 2;
    my ($status, $headers) = @$value;
    return PSGI if defined $status && $status =~ /\A[1-5][0-9][0-9]\z/ && ref $headers eq 'ARRAY';
    return;
}

sub no_future {
    my ($value) = @_;
    my $kind    = of_answer($value);
    my $text    = 'the application did not return a Future';
    return "$text\n" if !defined $kind;
    return "$text: " . sentence('it', $kind) . "\n";
}

sub loaded {
    my ($first) = map { $_->[1] } grep { $INC{ $_->[0] } } @FRAMEWORKS;
    return $first;
}

sub of_text {
    my ($text, $name) = @_;
    # The server's bridge to Mojolicious loads PAGI's modules, too: they tell nothing about the application.
    return if $text =~ /\bMojo::Server::Peregrine\b/;
    return if $text =~ $PAGI_WORDS || grep { m{\APAGI/(?!(?:Server[/.]|Sync\.pm\z))} } keys %INC;
    return loaded() // _used($text) // ($name =~ /\.psgi\z/ || $text =~ $PSGI_WORDS ? PSGI : undef);
}

sub _used {
    my ($text)      = @_;
    my ($framework) = $text =~ $FRAMEWORK_USE or return;
    return $framework eq 'Plack' ? PSGI : "a $framework application";
}

sub sentence {
    my ($name, $kind) = @_;
    my $which = $kind eq PSGI  ? 'those of PSGI' : $kind =~ /Mojolicious/ ? 'those of Mojolicious' : undef;
    my $where = defined $which ? " (the command peregrine runs $which)" : '';
    return "$name looks like $kind, and this server runs PAGI applications$where";
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::AppKind - whether an application was written for other servers

=head1 SYNOPSIS

    my $kind = PAGI::Server::AppKind::of_answer([ 200, [], ['Hello'] ]);    # 'a PSGI application'

=head1 DESCRIPTION

PAGI applications return Futures. If an application of another kind is started, the message says so, and not
only that a Future is missing.

=head1 FUNCTIONS

=head2 of_answer

    my $kind = PAGI::Server::AppKind::of_answer($returned);

The kind of an application by the value that it returned: C<[status, headers, ...]> and functions are
PSGI's. Undef if that cannot be said.

=head2 no_future

    die PAGI::Server::AppKind::no_future($returned);

The mistake of an application that returned no Future, in words.

=head2 loaded

    my $kind = PAGI::Server::AppKind::loaded();    # 'a Mojolicious application'

The kind of an application by the frameworks that this process has loaded; undef if there are none. A
PAGI application may load one, too: this is for code that is found not to give one.

=head2 of_text

    my $kind = PAGI::Server::AppKind::of_text($source, 'app.psgi');

The kind of an application by its source and the name of its file. Undef for a PAGI application, and
where nothing can be said.

=head2 is_mojolicious

    $kind = 'mojo' if PAGI::Server::AppKind::is_mojolicious($source);

Whether the source is that of a script of L<Mojolicious>, of an application or of L<Mojolicious::Lite>, that
L<Mojo::Server::Peregrine> can load.

=head2 sentence

    warn PAGI::Server::AppKind::sentence('app.psgi', 'a PSGI application');

A kind in words.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
