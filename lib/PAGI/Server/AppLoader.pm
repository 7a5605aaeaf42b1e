package PAGI::Server::AppLoader;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Spec ();
use PAGI::Server::AppKind;
use PAGI::Server::AppPackage;
use PAGI::Server::EventCheck;
use PAGI::Server::Exception;
use Peregrine::Fork;
use overload     ();
use Scalar::Util qw(blessed reftype);

# Bytes of a file that are read to tell its kind.
use constant TEXT_MAX => 1 << 20;

# The file that is being loaded. If its code calls exit, the process would end silently with status 0, like a
# server that was stopped.
my ($loading, $loader);

END {
    if (defined $loading && $loader == $$) {
        print STDERR "Error loading $loading: it called exit($?)\n";
        $? ||= 1;
    }
}

sub load {
    my ($class, %args) = @_;
    $loading = defined $args{code} ? 'the code of -e' : $args{app};
    $loader  = $$;
    my $app = eval {
        _with_syntax_errors(sub { _load(%args) });
    };
    my $error = $@;
    undef $loading;
    return $app if $app;
    die $error;
}

# Loads code, and keeps Perl's text about a syntax error. If the error is inside of a module's keyword, such
# as `await`, the module dies with `parse failed`, which replaces the text in $@; a handler for `die` still
# sees it. A handler of the application stays.
sub _with_syntax_errors {
    my ($load) = @_;
    my $before = $SIG{__DIE__};
    return $load->() if defined $before && length $before && ref $before ne 'CODE';
    my $said   = '';
    my $listen = sub {
        $said = "$@"  if !ref $_[0] && $_[0] =~ /\Aparse failed--compilation aborted at .+ line [0-9]+\.\n\z/;
        $before->(@_) if ref $before;
    };
    $SIG{__DIE__} = $listen;
    my $value = eval { $load->() };
    my $error = $@;
    if (ref $SIG{__DIE__} && $SIG{__DIE__} == $listen) {
        if (defined $before) { $SIG{__DIE__} = $before }
        else                 { delete $SIG{__DIE__} }
    }
    return $value                                                  if $value;
    $error =~ s/(?=\bparse failed--compilation aborted at )/$said/ if !ref $error;
    die $error;
}

sub _load {
    my (%args) = @_;
    _load_module(_import_parts($_)) for @{ $args{modules} || [] };
    my ($value, $origin);
    my @arguments = @{ $args{arguments} || [] };
    if (defined $args{code}) {
        _refuse_arguments('the code of -e', @arguments);
        ($value, $origin) = (_from_code($args{code}, $args{modules} || []), 'the code of -e');
    }
    elsif (($args{kind} // '') eq 'mojo') {
        _refuse_arguments($args{app}, @arguments);
        return _from_mojolicious($args{app});
    }
    elsif (is_file($args{app})) {
        _refuse_arguments("the file $args{app}", @arguments);
        ($value, $origin) = (_from_file($args{app}), $args{app});
    }
    else {
        ($value, $origin) = (_from_module($args{app}, \@arguments), "the module $args{app}");
    }
    Peregrine::Fork::fill_standard_descriptors();
    return _normalized($value, $origin);
}

# The exception as a line.
sub _reason {
    my ($exception) = @_;
    return PAGI::Server::Exception::text($exception) =~ s/\n?\z/\n/r;
}

# Refuses arguments for code other than a module, as only its `new` takes them.
sub _refuse_arguments {
    my ($origin, $name) = @_;
    die "unexpected argument '$name=...': only the new of a module takes such, and $origin has none\n"
        if defined $name;
    return;
}

sub is_file {
    my ($spec) = @_;
    return 1 if $spec =~ m{/};
    return 0 if $spec =~ /::/;
    return 1 if $spec =~ /\.(?:pl|psgi)\z/;
    return -e $spec ? 1 : 0;
}

# A sentence if the source of a file, or of -e, looks like an application of another kind. A module is not
# looked at, because it must have the methods of PAGI's modules.
sub doubt {
    my ($class, %args) = @_;
    my $is_file = !defined $args{code};
    return if $is_file && !is_file($args{app});
    my $text = $is_file ? _text_of($args{app}) : $args{code};
    my $name = $is_file ? $args{app}           : 'the code of -e';
    my $kind = PAGI::Server::AppKind::of_text($text, $name);
    return defined $kind ? PAGI::Server::AppKind::sentence($name, $kind) : undef;
}

# The kind of an application by the name of its file, or by its source.
sub kind {
    my ($class, %args) = @_;
    my $name = $args{app} // '';
    return 'psgi' if $name =~ /\.psgi\z/;
    return 'pagi' if $name =~ /\.pagi(?:\.pl)?\z/;
    return 'mojo'
        if defined $args{app} && is_file($name) && PAGI::Server::AppKind::is_mojolicious(_text_of($name));
    return defined $class->doubt(%args) ? 'psgi' : 'pagi';
}

sub _text_of {
    my ($file) = @_;
    open my $in, '<', $file or return '';
    read $in, my $text, TEXT_MAX;
    return $text // '';
}

# The application of a value: a code reference, or the one that an object makes by to_app.
sub _normalized {
    my ($value, $origin) = @_;
    return $value if ref $value && reftype($value) eq 'CODE';
    if (blessed $value && $value->can('to_app')) {
        my $app = eval { $value->to_app };
        die "Error loading $origin: to_app died: " . _reason($@) if $@;
        return $app                                              if ref $app && reftype($app) eq 'CODE';
        die "Error loading $origin: to_app must return a code reference, got: "
            . PAGI::Server::EventCheck::shown($app) . "\n";
    }
    # An object that is called as a function.
    return \&$value if blessed $value && overload::Method($value, '&{}');
    my $hint = _hint() // (ref $value ? '' : '. Its last statement gives it: \&app;');
    die "Error loading $origin: it must give a code reference, got: "
        . PAGI::Server::EventCheck::shown($value)
        . "$hint\n";
}

# The end of a line about a value that is no PAGI application but one of another kind.
sub _hint {
    my $kind = PAGI::Server::AppKind::loaded() // return;
    return '. ' . PAGI::Server::AppKind::sentence('It', $kind);
}

sub _from_file {
    my ($file) = @_;
    die "App file not found: $file\n"      if !-e $file;
    die "App file is a directory: $file\n" if -d _;
    # `do` gives undef when no descriptor is left, as for a file that returns undef.
    open my $in, '<', $file or die "App file cannot be read: $file: $!\n";
    close $in;
    my $path  = File::Spec->rel2abs($file);
    my $do    = _filling(_in_own_package($path, 'sub { return do $_[0] }'));
    my $value = do {
        local $0    = $path;
        local @ARGV = ();
        PAGI::Server::AppPackage::with_own_state(sub { $do->($path) });
    };
    Peregrine::Fork::show_again();
    die "Error loading $file: " . _reason($@) if $@;
    return $value;
}

# A function that loads code, and opens standard handles that the code has closed before anything else gets
# their descriptors.
sub _filling {
    my ($load) = @_;
    return sub {
        my $value = $load->(@_);
        Peregrine::Fork::fill_standard_descriptors();
        return $value;
    };
}

# Loads a script of Mojolicious, or the class of an application.
sub _from_mojolicious {
    my ($name) = @_;
    my $server = Mojo::Server::Peregrine->new;
    my $app    = eval {
        PAGI::Server::AppPackage::with_own_state(
            _filling(sub { return is_file($name) ? $server->load($name) : $server->load_class($name) }));
    };
    my $error = $@;
    Peregrine::Fork::show_again();
    return $app if $app;
    die "Error loading $name: " . _reason($error);
}

# Evaluates code that loads a file, in a package of its own for that file.
sub _in_own_package {
    my ($origin, $code) = @_;
    my $package = PAGI::Server::AppPackage::name($origin);
    my $value   = eval "package $package; $code";
    return $value;    # callers check $@
}

sub _from_code {
    my ($code, $modules) = @_;
    my $imports = join '', map { _use_statement($_) } @$modules;
    my $value   = _in_own_package('e', "$imports\n#line 1 \"-e\"\n$code");
    die 'Error loading the code of -e: ' . _reason($@) if $@;
    return $value;
}

# Splits MODULE=import,import as perl's -M does.
sub _import_parts {
    my ($spec) = @_;
    my ($module, $imports) = split /=/, $spec, 2;
    return ($module, defined $imports ? [ split /,/, $imports ] : undef);
}

sub _use_statement {
    my ($spec) = @_;
    my ($module, $imports) = _import_parts($spec);
    return "use $module; " if !$imports;
    return "use $module split(/,/, q\0" . join(',', @$imports) . "\0); ";
}

sub _load_module {
    my ($module) = @_;
    die "Invalid module name: $module\n" if $module !~ /\A[A-Za-z_]\w*(?:::\w+)*\z/;
    (my $file = "$module.pm") =~ s{::}{/}g;
    return if eval { require $file; 1 };
    my $error = $@;
    my $hint  = -e "lib/$file" ? "; there is lib/$file: -I lib" : '';
    die "Module not found: $module (\@INC: @INC)$hint\n" if $error =~ /\ACan't locate \Q$file\E in \@INC/;
    die "Error loading $module: $error";
}

sub _from_module {
    my ($module, $arguments) = @_;
    _load_module($module);
    for my $method (qw(new to_app)) {
        die "Error loading $module: it has no method $method" . (_hint() // '') . "\n"
            if !$module->can($method);
    }
    my $object = eval { $module->new(@$arguments) };
    die "Error loading $module: new died: " . _reason($@) if $@;
    return $object;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::AppLoader - finds and loads an application

=head1 SYNOPSIS

    my $app = PAGI::Server::AppLoader->load(app => 'app.pl');
    my $app = PAGI::Server::AppLoader->load(app => 'My::App', arguments => [ root => '/srv' ]);

=head1 DESCRIPTION

An application is a code reference, or an object with a method C<to_app> that returns one. It comes from a
file whose last statement gives it, from a module with C<new>, or from code on the command line.

A name with a slash is a file; one with C<::> is a module; one that ends in C<.pl> or C<.psgi> is a file;
otherwise an existing file wins.

Each load of a file, or of code, has a package of its own, see L<PAGI::Server::AppPackage>: the subs and
globals of a file that names no package are those of this load. While it loads, C<$0> is its path, C<@ARGV> is
empty, and L<FindBin> finds its folder. Later C<$0> is the program's path, as under plackup: a module that is
loaded in a request, and is the first one to use FindBin, finds the program's folder.

=head1 METHODS

=head2 load

    my $app = PAGI::Server::AppLoader->load(code => 'async sub { ... }', modules => ['Future::AsyncAwait']);

Takes C<app> (a file or a module), or C<code>; C<arguments> for a module's C<new>; C<kind>, C<mojo> for one
of Mojolicious; and C<modules> to load first, each as C<Module> or C<Module=import,import>. Returns the code
reference. Dies with a message that says what could not be loaded and why.

=head2 doubt

    # 'app.psgi looks like a PSGI application, and ...'
    my $sentence = PAGI::Server::AppLoader->doubt(app => 'app.psgi');

After L</load>, with its C<app> and C<code>: a sentence about an application that looks as if it was written
for other servers; otherwise nothing.

=head2 kind

    my $kind = PAGI::Server::AppLoader->kind(app => 'script/my_app');    # mojo

With the C<app> and C<code> of L</load>, before it: C<psgi>, C<pagi>, or C<mojo> for a script of
L<Mojolicious> (L<PAGI::Server::AppKind/is_mojolicious>), by the name of the file, or by its text.

=head2 is_file

    say 'a file' if PAGI::Server::AppLoader::is_file('app.pl');

A function: whether L</load> would take this C<app> for a file.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
