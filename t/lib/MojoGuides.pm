package MojoGuides;

# The applications in Mojolicious' guides, each as the text of a script of Mojolicious::Lite.

use strict;
use warnings;

use Exporter  qw(import);
use TestTools qw(content);

our $VERSION   = '0.003000';
our @EXPORT_OK = qw(examples questions);

# The blocks of code in a guide: whole scripts as [name, text], named by the heading above, and a reference to
# a hash of the texts of modules by name.
sub examples {
    my ($source, $guide) = @_;
    my ($heading, $block, @found, %modules) = ('', '');
    my $end = sub {
        if    ($block =~ /^package ([\w:]+);/m) { $modules{$1} = $block }
        elsif ($block =~ /^use Mojolicious::Lite/m && $block =~ /^\s*app->start;/m) {
            push @found, [ "$guide, $heading", $block ];
        }
        $block = '';
    };
    for my $line (split /\n/, content("$source/lib/Mojolicious/Guides/$guide.pod")) {
        if    ($line =~ /\A  (.*)/) { $block .= "$1\n" }
        elsif ($line eq '')         { $block .= "\n" if length $block }
        else                        { $end->() }
        $heading = $1 =~ s/[A-Z]<(.*?)>/$1/gr if $line =~ /\A=head\d (.*)/;
    }
    $end->();
    my %count;
    $count{ $_->[0] }++ and $_->[0] .= " ($count{ $_->[0] })" for @found;
    return (\%modules, @found);
}

# Requests for a script: [method, path] of each route; the method of a WebSocket is 'WS'. A process of its own
# loads the script.
sub questions {
    my ($file, $library) = @_;
    my $pid = open(my $out, '-|') // die "fork: $!";
    if (!$pid) {
        unshift @INC, $library;
        require Mojo::Server;
        open STDERR, '>', '/dev/null' or die $!;
        my $app   = eval { Mojo::Server->new->load_app($file) };    # Expected: examples that lack a module.
        my @paths = $app ? map { _routes($_) } @{ $app->routes->children } : ();
        print join "\n", @paths;
        close STDOUT;
        POSIX::_exit(0);
    }
    my %seen;
    my @questions = map { [split] } grep { !$seen{$_}++ } map { chomp; $_ } <$out>;
    close $out;
    return @questions;
}

sub _routes {
    my ($route) = @_;
    my @below = map { _routes($_) } @{ $route->children };
    return @below if @below || !$route->is_endpoint;
    my @methods = $route->is_websocket ? 'WS' : @{ $route->methods || [qw(GET POST)] };
    return map {
        my $method = $_;
        map { "$method $_" } _paths($route)
    } grep { $_ ne 'HEAD' && $_ ne 'OPTIONS' } @methods;
}

# A path whose placeholders have values that match, and a path with other values.
sub _paths {
    my ($route) = @_;
    my (%wanted, %other);
    for (my $part = $route; $part; $part = $part->parent) {
        my $pattern     = $part->pattern;
        my $constraints = $pattern->constraints;
        for my $name (@{ $pattern->placeholders }) {
            my $constraint = $constraints->{$name};
            $wanted{$name} = ref $constraint eq 'ARRAY' ? $constraint->[0] : defined $constraint ? 23 : 'one';
            $other{$name}  = '77x';
        }
    }
    my %paths = map { ($route->render($_) || '/') => 1 } \%wanted, \%other;
    return sort keys %paths;
}

1;
