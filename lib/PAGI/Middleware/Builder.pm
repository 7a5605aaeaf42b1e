package PAGI::Middleware::Builder;

use strict;
use warnings;

our $VERSION = '0.003000';

use Carp         qw(croak);
use Exporter     qw(import);
use Scalar::Util qw(blessed reftype);

our @EXPORT = qw(builder enable enable_if mount);

# The builder of the `builder { }` block that is running.
our $current;

sub new {
    my ($class) = @_;
    return bless { layers => [], mounts => [] }, $class;
}

sub builder(&) {
    my ($block) = @_;
    my $self    = __PACKAGE__->new;
    my $app     = do { local $current = $self; $block->() };
    return $self->to_app($app);
}

# The builder of a call: the words are methods of a builder, too, and functions inside a block.
sub _builder {
    my ($word, $arguments) = @_;
    return shift @$arguments if blessed $arguments->[0] && $arguments->[0]->isa(__PACKAGE__);
    return $current // croak "$word is for use inside builder { }";
}

sub enable {
    my (@arguments) = @_;
    my $self = _builder(enable => \@arguments);
    push @{ $self->{layers} }, { middleware => _middleware(enable => @arguments) };
    return;
}

sub enable_if(&$;@) {
    my (@arguments) = @_;
    my $self        = _builder(enable_if => \@arguments);
    my $condition   = shift @arguments;
    croak 'enable_if needs a condition, a function of the scope' if (reftype $condition // '') ne 'CODE';
    push @{ $self->{layers} },
        { middleware => _middleware(enable_if => @arguments), condition => $condition };
    return;
}

sub mount {
    my (@arguments) = @_;
    my $self = _builder(mount => \@arguments);
    my ($path, $app) = @arguments;
    croak "mount needs a path that begins with '/', not " . _shown($path)
        if !defined $path || ref $path || $path !~ m{\A/};
    push @{ $self->{mounts} }, { prefix => $path =~ s{/+\z}{}r, app => _app("mount '$path'", $app) };
    return;
}

sub to_app {
    my ($self, $app) = @_;
    my ($root) = grep { $_->{prefix} eq '' } @{ $self->{mounts} };
    $app = $root->{app} if !defined $app && $root;
    $app = _app('builder', $app);
    $app = _mounted($app, grep { $_->{prefix} ne '' } @{ $self->{mounts} });
    $app = _layered($app, $_) for reverse @{ $self->{layers} };
    return $app;
}

# ---- Parts --------------------------------------------------------------------------------------

sub _shown {
    my ($value) = @_;
    return 'undef'                      if !defined $value;
    return 'an object of ' . ref $value if blessed $value;
    return ref $value ? 'a reference' : "'$value'";
}

# A function, or the function that an object makes by to_app.
sub _app {
    my ($where, $value) = @_;
    $value = $value->to_app if blessed $value && $value->can('to_app');
    return $value if (reftype $value // '') eq 'CODE';
    croak "$where needs an application, a code reference or an object with to_app, not " . _shown($value);
}

# A middleware object: the given one, or a new one of the class that is named.
sub _middleware {
    my ($word, $what, @config) = @_;
    if (blessed $what) {
        croak "$word: " . ref($what) . ' has no method wrap' if !$what->can('wrap');
        croak "$word: settings belong to where the object of " . ref($what) . ' is made' if @config;
        return $what;
    }
    croak "$word needs the name of a middleware, or an object, not " . _shown($what)
        if !defined $what || $what !~ /\A\^?[A-Za-z_]\w*(?:::\w+)*\z/;
    croak "$word '$what': settings come in pairs of a name and a value" if @config % 2;
    my $class = $what =~ /\A\^(.*)/s ? $1 : "PAGI::Middleware::$what";
    _load($word, $what, $class);
    return $class->new(@config);
}

sub _load {
    my ($word, $what, $class) = @_;
    return if $class->can('wrap');
    my $file = $class =~ s{::}{/}gr . '.pm';
    if (!eval { require $file; 1 }) {
        my $problem = $@;
        croak "$word '$what': $problem" if $problem !~ /\ACan't locate \Q$file\E /;
        my $hint = $what =~ /::/ ? "; a class with a name of its own is '^$what'" : '';
        croak "$word '$what': $class is not installed$hint";
    }
    croak "$word '$what': $class has no methods new and wrap" if grep { !$class->can($_) } qw(new wrap);
    return;
}

sub _layered {
    my ($app,        $layer)     = @_;
    my ($middleware, $condition) = @{$layer}{qw(middleware condition)};
    my $around = $middleware->wrap($app);
    croak ref($middleware) . '->wrap gave no application' if (reftype $around // '') ne 'CODE';
    return $around                                        if !$condition;
    return sub {
        my ($scope, @rest) = @_;
        my $next = $scope->{type} ne 'lifespan' && $condition->($scope) ? $around : $app;
        return $next->($scope, @rest);
    };
}

# Dispatches to mounts. The longest prefix wins, so that their order does not matter.
sub _mounted {
    my ($app, @mounts) = @_;
    return $app if !@mounts;
    my %at;
    for my $mount (@mounts) {
        croak "mount: two applications at '$mount->{prefix}'" if $at{ $mount->{prefix} };
        $at{ $mount->{prefix} } = $mount->{app};
    }
    my ($prefixes) = map { qr{\A($_)(?=/|\z)} } join '|',
        map { quotemeta } sort { length $b <=> length $a } keys %at;
    return sub {
        my ($scope, @rest) = @_;
        return $app->($scope, @rest) if !defined $scope->{path} || $scope->{path} !~ $prefixes;
        my $inner = {
            %$scope,
            root_path => ($scope->{root_path} // '') . $1,
            path      => length $scope->{path} > length $1 ? substr($scope->{path}, length $1) : '/',
        };
        return $at{$1}->($inner, @rest);
    };
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Middleware::Builder - puts middleware around an application

=head1 SYNOPSIS

    use PAGI::Middleware::Builder;

    my $app = builder {
        enable 'SecurityHeaders', x_frame_options => 'DENY';
        enable_if { $_[0]{path} =~ m{^/admin/} } '^My::Login', realm => 'admin';
        mount '/files' => $files;
        $site;
    };

=head1 DESCRIPTION

A block that says what is around an application, outermost first, and at which paths others answer. Its value
is an application again: C<builder { }> may stand where an application stands, in C<mount> as well.

A request goes through the middleware in the order in which it is enabled, then to the application that is
mounted at its path, or to the block's last value. Responses go the other way. The scope C<lifespan> goes to
the block's last value, through the middleware that is enabled without a condition.

=head1 FUNCTIONS

All are exported. The last three die outside of a block.

=head2 builder

    my $app = builder { ...; $app };

The block's last value is the application: a code reference, or an object with C<to_app>. It may be left out
where something is mounted at C</>.

=head2 enable

    enable 'SecurityHeaders', %config;    # PAGI::Middleware::SecurityHeaders
    enable '^My::Middleware', %config;    # My::Middleware
    enable(My::Middleware->new(%config));

Loads a class, makes an object of it with C<new(%config)>, and has it C<wrap> what follows. Behind a C<^>
stands the whole name of a class. An object needs the parentheses, and its settings where it is made.

=head2 enable_if

    enable_if { $_[0]{path} =~ m{^/api/} } 'Name', %config;

Like C<enable>, for requests for which the block, which gets the scope as C<$_[0]>, returns
true. It is asked for each of them.

=head2 mount

    mount '/path' => $app;

Requests for C</path> and what is below it go to this application: C<path> in its scope is the rest, C</> if
there is none, and C<root_path> has what was taken off in addition. C<raw_path> stays as it came. Of several
that fit the longest path counts.

=head1 METHODS

The functions without a block:

    my $builder = PAGI::Middleware::Builder->new;
    $builder->enable('SecurityHeaders');
    $builder->enable_if(sub { $_[0]{path} =~ m{^/admin/} }, '^My::Login');
    $builder->mount('/files', $files);
    my $app = $builder->to_app($site);

=head2 new

=head2 to_app

    my $app = $builder->to_app($app);

Returns the application, as C<builder { }> does.

=head1 SEE ALSO

L<PAGI::Middleware>, L<PAGI::Middleware::SecurityHeaders>. It takes what C<PAGI::Middleware::Builder> of the
distribution PAGI-Tools documents; where that is installed, this module is not.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
