package PAGI::Server::Runner;

use strict;
use warnings;

our $VERSION = '0.003000';

use Carp       qw(croak);
use Errno      qw(EACCES EADDRINUSE);
use File::Spec ();
use Future::AsyncAwait;
use Scalar::Util qw(blessed);

use PAGI::Server;
use PAGI::Server::Answer;
use PAGI::Server::AppLoader;
use PAGI::Server::AppPackage;
use PAGI::Server::Banner;
use PAGI::Server::CommandLine;
use PAGI::Server::EnvFile;
use PAGI::Server::Log;
use PAGI::Server::Options;
use PAGI::Server::Options::Type;
use PAGI::Server::TLS;
use Peregrine::Daemon;
use Peregrine::Fork;
use Peregrine::Handover;
use Peregrine::Nearest;
use Peregrine::Optional;
use Peregrine::Place;
use Peregrine::Process;
use Peregrine::Server::Configuration;

# Exit statuses
use constant {
    OK      => 0,
    FAILED  => 1,
    MISUSED => 2,
};

# Modules that few starts need, by the option that needs them. Each start would compile them otherwise.
my %MODULE = (
    check      => 'PAGI::Server::Check',
    completion => 'PAGI::Server::Completion',
    error_log  => 'PAGI::Server::ErrorLog',
    mount      => 'PAGI::Server::MountPlan',
    pid        => 'PAGI::Server::PidFile',
    reload     => 'PAGI::Server::Sources',
);

# Modules of subcommands: `pagi-server status PID`.
my @SUBCOMMANDS = qw(
    Peregrine::Trace
    PAGI::Server::CertificateCommand
    PAGI::Server::ControlCommand
    PAGI::Server::PublishCommand
);

sub program { return 'pagi-server' }

sub new {
    my ($class, %options) = @_;
    eval { %options = PAGI::Server::Options::canonical(%options); 1 }
        or croak 'PAGI::Server::Runner: ' . _line($@);
    for my $name (sort keys %options) {
        my $option = PAGI::Server::Options::find($name);
        croak "PAGI::Server::Runner: there is no option '$name'"
            . Peregrine::Nearest::hint($name, map { $_->{name} } PAGI::Server::Options::all())
            if !$option;
        $options{$name} =
            eval { _given($option, $options{$name}) } // croak 'PAGI::Server::Runner: ' . _line($@)
            if defined $options{$name};
    }
    my $self = bless { options => \%options, arguments => [] }, $class;
    $self->_locate_files;
    return $self;
}

# A value of an option, checked. The application is a name here, or code.
sub _given {
    my ($option, $value) = @_;
    my $name = $option->{name};
    return $value                                      if $name eq 'app';
    return PAGI::Server::Options::check($name, $value) if !$option->{many};
    my @values = ref $value eq 'ARRAY' ? @$value : $value;
    return [ map { PAGI::Server::Options::check($name, $_) } @values ];
}

sub run {
    my ($class, @arguments) = @_;
    my $self   = ref $class ? $class : $class->new;
    my $status = eval { $self->_run(@arguments) };
    return $status if defined $status;
    my $error = $@;
    return $self->_misused($self->_located($$error)) if ref $error eq 'SCALAR';
    return $self->_failed($error);
}

sub _failed {
    my ($self, $error) = @_;
    $self->_complain(_line($error));
    return FAILED;
}

sub _misused {
    my ($self, $problem) = @_;
    my $program = $self->program;
    $self->_complain("$program: " . _line($problem), "Try '$program --help'.");
    return MISUSED;
}

# Prints a problem. `$advice`: a second line, which programs do not get.
sub _complain {
    my ($self, $text, $advice) = @_;
    my @lines = grep { defined } $text, $advice;
    # A mistake in the options themselves is found before they are known.
    my $is_json = ($self->{options}{log_format} // '') eq 'json';
    print STDERR $is_json
        ? PAGI::Server::Log->line(json => error => $text)
        : PAGI::Server::Log::bytes_of(join '', map { "$_\n" } @lines);
    return;
}

sub _run {
    my ($self, @arguments) = @_;
    my $done = @arguments && $arguments[0] =~ /\A[a-z]+\z/ ? $self->_subcommand(@arguments) : undef;
    return $done              if defined $done;
    $self->_parse(@arguments) if @arguments;
    my $options = $self->{options};
    return $self->_help    if $options->{help};
    return $self->_version if $options->{version};
    return $self->_print(PAGI::Server::Completion->script($options->{completion}, $self->program))
        if defined $options->{completion};
    PAGI::Server::Log->adopt_warnings($options->{log_format});
    $self->_need_app;
    my $server = $self->_server;
    return $self->_check($server) if $options->{check};
    return $self->_serve($server);
}

# The exit status of a subcommand; undef: the word is none.
sub _subcommand {
    my ($self, @arguments) = @_;
    _load_modules(@SUBCOMMANDS);
    return Peregrine::Trace->command($self->program, @arguments[ 1 .. $#arguments ])
        if Peregrine::Trace::is_meant(@arguments);
    return PAGI::Server::CertificateCommand->command(@arguments)
        if PAGI::Server::CertificateCommand::is_meant(@arguments);
    return PAGI::Server::ControlCommand->command(@arguments) // $self->_help
        if PAGI::Server::ControlCommand::is_meant(@arguments);
    return PAGI::Server::PublishCommand->command(@arguments[ 1 .. $#arguments ])
        if PAGI::Server::PublishCommand::is_meant(@arguments);
    return undef;    ## no critic
}

sub _load_modules {
    my (@modules) = @_;
    require(s{::}{/}gr . '.pm') for @modules;
    return;
}

# Calls code; a mistake in options becomes an exception for the calling program.
sub _told {
    my ($self, $code) = @_;
    my $value = eval { $code->() };
    return $value if defined $value;
    my $error = $@;
    croak 'PAGI::Server::Runner: ' . $self->_located($$error) if ref $error eq 'SCALAR';
    die $error;
}

sub parse_options {
    my ($self, @arguments) = @_;
    return $self->_told(sub { $self->_parse(@arguments) });
}

# Reads the command line, which wins over the configuration file, and that over the constructor.
sub _parse {
    my ($self,  @arguments) = @_;
    my ($given, @words)     = PAGI::Server::CommandLine->parse(@arguments);
    my $typed = PAGI::Server::CommandLine->values_of($given);
    my @noted;
    _load_modules('PAGI::Server::ConfigFile') if defined $typed->{config};
    my $file = defined $typed->{config} ? PAGI::Server::ConfigFile->read($typed->{config}, \@noted) : {};
    _choose_places($file, $typed);
    my $before = $self->{options};
    _choose_places($before, { %$file, %$typed });
    $self->{noted} =
        [ grep { my $name = $_->{option}{name}; exists $file->{$name} && !exists $typed->{$name} } @noted ];
    $self->{options} = { %$before, %$file, %$typed };
    $self->{title}   = join ' ', $self->program, @arguments if @arguments;
    $self->_locate_files;
    $self->_choose_app($typed, @words);
    delete @{$self}{qw(app prepared mode mounts)};
    return $self;
}

# Enters the directory of --chdir, before any relative path of the options is used. Only once: the path itself
# may be relative.
sub _enter_directory {
    my ($self) = @_;
    my $directory = $self->{options}{chdir} // return;
    return if ($self->{entered} // '') eq $directory;
    # Relative folders of @INC, such as -Iblib/lib, have to lead to modules of the server, too, which it loads
    # when it needs them.
    push @INC, map { File::Spec->rel2abs($_) }
        grep { !ref && !File::Spec->file_name_is_absolute($_) } @INC;
    my $path = File::Spec->rel2abs($directory);
    chdir $directory or die \"option --chdir: cannot go to '$directory': $!";
    @{$self}{qw(entered directory)} = ($directory, $path);
    return;
}

sub _print {
    my ($self, $text) = @_;
    print $text;
    return OK;
}

# ---- The application to run ----------------------------------------------------------------------

sub _choose_app {
    my ($self, $typed, @words) = @_;
    my $options = $self->{options};
    my @ways    = qw(app code mount);
    my %named   = map { $_ => 1 } grep { defined $typed->{$_} } @ways;
    if (!$named{app} && !$named{code} && @words && $words[0] !~ /=/) {
        $options->{app} = shift @words;
        $named{app} = 1;
    }
    # The command line wins over the file, also if it names the application in another way.
    delete @{$options}{ grep { !$named{$_} } @ways } if %named;
    die \'both -e and --app are given'               if defined $options->{app} && defined $options->{code};
    die \'--mount is given, and an application besides'
        if $options->{mount} && (defined $options->{app} || defined $options->{code});
    for my $word (@words) {
        die \"unexpected argument '$word'" if $word !~ /\A(\w+)=(.*)\z/s;
        push @{ $self->{arguments} }, $1 => $2;
    }
    return;
}

sub _names_app {
    my ($self) = @_;
    my $options = $self->{options};
    return defined $options->{app} || defined $options->{code} || $options->{mount};
}

# Serves the current directory if no application is named.
sub _need_app {
    my ($self) = @_;
    return if $self->_names_app;
    my $options = $self->{options};
    $options->{lifespan_mode} //= 'off';    # the application is one of the server's
    return $options->{app} = \&_nothing_here if $options->{static};
    $options->{app} = 'PAGI::App::Directory';
    my %given = @{ $self->{arguments} || [] };
    push @{ $self->{arguments} }, root => '.' if !defined $given{root};
    my $root = File::Spec->rel2abs($given{root} // '.');
    $self->_log->info("no application is named: serving the files of $root");
    my ($file) = grep { -f "$root/$_" } qw(app.psgi app.pl);
    $self->_log->warn("clients can read the text of $file there; '${\$self->program} $file' runs it")
        if defined $file;
    return;
}

# The application behind folders that the engine serves: it answers 404.
async sub _nothing_here {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';
    my $headers = [ [ 'content-type' => 'text/plain' ] ];
    return await PAGI::Server::Answer::whole($scope, $send, 404, $headers, "Not Found\n");
}

# Drops places of the file if the command line names one, which wins also if it is of another kind.
sub _choose_places {
    my ($file, $typed) = @_;
    my @kinds = ([qw(host port)], ['socket'], ['listen']);
    my @other = grep {
        my $kind = $_;
        !grep { exists $typed->{$_} } @$kind
    } @kinds;
    delete @{$file}{ map { @$_ } @other } if @other < @kinds;
    return;
}

# Makes paths absolute, because the application may change the directory when it is loaded.
sub _locate_files {
    my ($self) = @_;
    my $options = $self->{options};
    # The application, which may go to another directory, is loaded later.
    _load_modules(map { $MODULE{$_} } grep { defined $options->{$_} } sort keys %MODULE);
    $self->_enter_directory;
    # The path of --chdir as it was given: a symbolic link in it may lead to another version later.
    my @base = $self->{directory} // ();
    $options->{$_} = File::Spec->rel2abs($options->{$_}, @base)
        for grep { defined $options->{$_} && !ref $options->{$_} } qw(error_log worker_pool);
    # Absolute, because the server removes the file that it has written, wherever the link leads by then.
    $options->{pid}      = File::Spec->rel2abs($options->{pid}) if defined $options->{pid};
    $options->{env_file} = [ map { File::Spec->rel2abs($_, @base) } @{ $options->{env_file} } ]
        if $options->{env_file};
    return;
}

sub mode {
    my ($self) = @_;
    $self->_choose_mode if !defined $self->{mode};
    return $self->{mode};
}

# Chooses the mode, which decides about the defaults of other options.
sub _choose_mode {
    my ($self) = @_;
    my $options = $self->{options};
    $self->_read_env_files;
    my $has_mojolicious = grep { $_->{kind} eq 'mojo' } $self->_mounts;
    my ($mode)          = grep { defined && length } $options->{env}, $ENV{PAGI_ENV},
        $has_mojolicious               ? $ENV{MOJO_MODE} : undef,
        $options->{reload} || -t STDIN ? 'development'   : 'production';
    $mode = 'production' if $mode eq 'deployment';    # as plackup calls it
    my $problem = PAGI::Server::Options::Type::problem(PAGI::Server::Options::find('env'), $mode);
    die \(PAGI::Server::Options::variable('env') . " (option 'env') $problem") if defined $problem;
    $ENV{PAGI_ENV} = $self->{mode} = $mode;
    my @known = @{ PAGI::Server::Options::find('env')->{offer} };
    my $hint  = (grep { $_ eq $mode } @known) ? '' : Peregrine::Nearest::hint($mode, @known);
    $self->_log->warn("'$mode' is none of the modes @known$hint") if $hint;
    # The standard error of a daemon leads nowhere.
    my $silent = $mode eq 'production' || $options->{daemonize};
    return if exists $options->{access_log};
    # The engine needs the log's path to open it anew.
    $options->{access_log} = $silent ? undef : $options->{error_log}
        if $silent || defined $options->{error_log};
    return;
}

sub _read_env_files {
    my ($self) = @_;
    PAGI::Server::EnvFile->apply(@{ $self->{options}{env_file} || [] });
    return;
}

sub load_app {
    my ($self, $app, @arguments) = @_;
    if (defined $app) {
        delete $self->{options}{code};
        $self->{options}{app} = $app;
        $self->{arguments} = \@arguments;
    }
    delete @{$self}{qw(app prepared mounts)};
    return $self->_told(sub { $self->_app });
}

sub prepare_app {
    my ($self) = @_;
    return $self->_told(sub { $self->_prepared_app });
}

# The application without wrappers, loaded once.
sub _app {
    my ($self) = @_;
    return $self->{app} //= $self->_loaded_app;
}

sub _loaded_app {
    my ($self) = @_;
    my $options = $self->{options};
    $self->mode;
    $self->_need_app;
    return $options->{app} if ref $options->{app} eq 'CODE';
    my %known = map { $_ => 1 } @INC;
    unshift @INC, grep { !$known{$_} } @{ $options->{lib} || [] };
    Peregrine::Process->prefer_own_loop if !defined $options->{loop_type};
    return $self->_load_mounts          if $self->_mounts;
    my %which = %{$options}{qw(app code)};
    my $app   = PAGI::Server::AppLoader->load(
        %which,
        modules   => $options->{module} || [],
        arguments => $self->{arguments}
    );
    my $doubt = PAGI::Server::AppLoader->doubt(%which);
    $self->_log->warn($doubt) if defined $doubt && $self->_is_first;
    return $app;
}

# Whether this is the first of several interpreters that load the application: only it logs oddities.
sub _is_first {
    my ($self) = @_;
    return ($self->{worker_num} || 1) == 1;
}

# The application that the server gets: wrapped, or with mounts.
sub _prepared_app {
    my ($self) = @_;
    return $self->{prepared} //= Peregrine::Process->load_once(
        $self->_log,
        'the application',
        sub { return $self->_mounts ? $self->_app : $self->_wrapped($self->_app) }
    );
}

# The mounts, see PAGI::Server::Mounts; none if the server has a single application of PAGI.
sub _mounts {
    my ($self) = @_;
    return @{ $self->{mounts} } if $self->{mounts};
    return                      if !$self->{options}{mount};
    $self->{mounts} = [ PAGI::Server::MountPlan::of($self->{options}, $self->{directory}) ];
    return @{ $self->{mounts} };
}

sub _load_mounts {
    my ($self) = @_;
    _load_modules('PAGI::Server::Mounts');
    my @modules = @{ $self->{options}{module} || [] };
    my $group   = $self->{group};
    my @mine    = grep { !defined $group || ($_->{group} // 0) == $group } $self->_mounts;
    $self->_prepare_mojolicious if grep { $_->{kind} eq 'mojo' } @mine;
    my $subs = @mine > 1 && $self->_is_first ? PAGI::Server::AppPackage->new : undef;
    my %app;

    for my $mount (@mine) {
        my $app = PAGI::Server::AppLoader->load(
            app       => $mount->{name},
            code      => $mount->{code},
            kind      => $mount->{kind},
            modules   => \@modules,
            arguments => $self->{arguments}
        );
        $app{$mount} = $self->_wrapped($app, $mount->{kind});
        $self->_log->warn($_) for $subs ? $subs->complaints : ();
    }
    # The routes of the engine are those of all mounts.
    return PAGI::Server::Mounts->new(map { exists $app{$_} ? { %$_, app => $app{$_} } : $_ } $self->_mounts);
}

# Takes over the settings for hypnotoad, if there is one application, of Mojolicious.
sub _adopt_hypnotoad {
    my ($self) = @_;
    my @mounts = $self->_mounts;
    return if @mounts != 1 || $mounts[0]{kind} ne 'mojo' || $self->mode eq 'development';
    $self->_prepare_mojolicious;
    require Mojo::Server::Peregrine::Hypnotoad;
    my ($options, $settings) = ($self->{options}, $self->_settings_of_application);
    my $given = eval { Mojo::Server::Peregrine::Hypnotoad->options($settings) };
    die \_line($@)          if !$given;
    delete $given->{listen} if grep { exists $options->{$_} } qw(host port socket listen);
    delete @{$given}{ grep { exists $options->{$_} } keys %$given };
    my $values = PAGI::Server::CommandLine->values_of($given, 'hypnotoad');
    @{$options}{ keys %$values } = values %$values;
    $self->_locate_files;
    return;
}

# The settings of the application. A process of its own loads it, because the master must have nothing of it.
sub _settings_of_application {
    my ($self)  = @_;
    my ($mount) = $self->_mounts;
    my $text    = $self->_said_by_process(
        $mount,
        sub {
            PAGI::Server::MountPlan::enter($mount, $self->{options}) if $mount->{group};
            # Expected: the application cannot be loaded. The start will report it.
            my $settings = eval { (PAGI::Server::Mounts->of($self->_app))[0]{app}->({ type => 'settings' }) };
            return Mojo::JSON::encode_json($settings // {});
        }
    );
    return defined $text ? Mojo::JSON::decode_json($text) : {};
}

# The text that a function returns in a process of its own, run as the user of a mount's workers.
sub _said_by_process {
    my ($self, $mount, $code) = @_;
    my $identity = $mount->{identity} // Peregrine::Daemon->identity(@{ $self->{options} }{qw(user group)});
    return Peregrine::Fork::said($identity, $code);
}

# Sets Mojolicious up before it is loaded: Mojo::IOLoop makes its reactor when any application loads it.
sub _prepare_mojolicious {
    my ($self) = @_;
    $ENV{MOJO_MODE}    = $self->mode if length($self->{options}{env} // '') || !length($ENV{MOJO_MODE} // '');
    $ENV{MOJO_REACTOR} = 'Mojo::Reactor::Peregrine';
    require Mojo::Server::Peregrine;
    return;
}

# Wraps the application in a middleware that finds mistakes, in development and if it is installed.
sub _wrapped {
    my ($self, $app, $kind) = @_;
    my $options = $self->{options};
    return $app                if $self->mode ne 'development';
    return $app                if defined $options->{default_middleware} && !$options->{default_middleware};
    return $app                if ($kind // 'pagi') eq 'mojo';    # Mojolicious finds mistakes itself
    return _wrapped_psgi($app) if ($kind // 'pagi') eq 'psgi';
    return $app                if !Peregrine::Optional::load('PAGI::Middleware::Lint');
    return PAGI::Middleware::Lint->new(strict => 1)->wrap($app);
}

# Wraps an application of PSGI in development, as plackup does.
sub _wrapped_psgi {
    my ($app) = @_;
    for my $name (qw(Lint StackTrace)) {
        my $class = "Plack::Middleware::$name";
        $app = $class->wrap($app) if Peregrine::Optional::load($class);
    }
    return $app;
}

sub load_server {
    my ($self) = @_;
    return $self->_told(sub { $self->_server });
}

sub _server {
    my ($self) = @_;
    $self->mode;
    $self->_adopt_hypnotoad;
    my $options = $self->{options};
    my %for_server =
        map { $_ => $options->{$_} }
        grep { $_ ne 'app' && PAGI::Server::Options::is_known($_) } keys %$options;
    my $ssl = eval { PAGI::Server::TLS::from_options($options) };
    die \_line($@) if $@;
    $for_server{ssl}        = $ssl                                            if $ssl;
    $for_server{extensions} = { map { $_ => {} } @{ $options->{extension} } } if $options->{extension};
    my $class = $options->{server};
    $for_server{workers} ||= 1 if $self->_reloads;

    if (defined $class) {
        eval "require $class; 1" or die "Error: Cannot load the server class $class: $@";
        my %here = PAGI::Server::Options::defaults();
        return $class->new(%here{qw(host port quiet)}, %for_server, app => $self->_prepared_app);
    }
    # The options are checked before any code of the application runs: it may change the working directory.
    my ($class_here, $kind) = $self->_class_and_kind;
    my $configuration = eval { Peregrine::Server::Configuration->from_environment($kind, %for_server)->load };
    return $self->_with_app($class_here, $configuration) if $configuration;
    my $problem = _line($@);
    $problem = PAGI::Server::TLS::in_flags($problem, $options) if $ssl && $problem !~ /\Aoption 'listen'/;
    die \$problem;
}

# The class of the server, and the kind of applications that decides about its defaults.
sub _class_and_kind {
    my ($self) = @_;
    my %kinds  = map { $_->{kind} => 1 } $self->_mounts;
    my ($kind) = grep { $kinds{$_} } qw(psgi pagi mojo) or return ('PAGI::Server', 'pagi');
    require Plack::Handler::Peregrine::Mounted;
    $ENV{PLACK_ENV} //= $self->mode eq 'production' ? 'deployment' : $self->mode if $kind eq 'psgi';
    return ('Plack::Handler::Peregrine::Mounted', $kind);
}

# Checks that workers of one mount are possible.
sub _check_mounts {
    my ($self,    $of_server) = @_;
    my ($options, @mounts)    = ($self->{options}, $self->_mounts);
    return if !grep { $_->{workers} } @mounts;
    PAGI::Server::MountPlan::check($options, $of_server, @mounts);
    for my $own (grep { %{ $_->{options} } } @mounts) {
        $self->_check_by_process($own, sub { PAGI::Server::MountPlan::enter($own, $options) });
    }
    return;
}

sub _check_by_process {
    my ($self, $mount, $code) = @_;
    my $what = defined $mount->{text} ? "--mount '$mount->{text}'" : 'the application';
    defined $self->_said_by_process($mount, sub { $code->(); return '' })
        or die "$what: the process that checks it ${\Peregrine::Fork::how_it_ended($?)}\n";
    return;
}

# Loads an application to check it, with the user, the environment and the folders of the workers that will
# run it: in a process, unless its workers are of the user who checks.
sub _check_app {
    my ($self, $own) = @_;
    return $self->_check_by_process($own, sub { $self->_load_in_interpreter(1, $own->{group}) });
}

# Arguments for the server that --check makes: the application, or code that would load it.
sub _checked_app {
    my ($self, $workers) = @_;
    $self->_check_app($_) for grep { $_->{group} } $self->_mounts;
    $self->{group} = 0;
    return (app => $self->_prepared_app)
        if !$workers || !Peregrine::Daemon->identity(@{ $self->{options} }{qw(user group)});
    $self->_check_app({ group => 0 });
    return (load_app => sub { return $self->_load_in_interpreter(@_) }, mounts => [ $self->_mounts ]);
}

# Makes the server. The master of interpreters loads no application, so that interpreters which start later
# get newer code.
sub _with_app {
    my ($self, $class, $configuration) = @_;
    $self->_check_mounts($configuration->options);
    die \'with --mount, --grip is a setting of a mount: --mount PATH=APPLICATION,grip=PREFIX'
        if defined $configuration->options->{grip} && $self->{options}{mount};
    if ($self->{options}{check}) {
        my @app = $self->_checked_app($configuration->options->{workers});
        return $class->new(configuration => $configuration, @app);
    }
    return $class->new(configuration => $configuration, app => $self->_prepared_app)
        if !$configuration->options->{workers};
    my $server = $class->new(
        configuration => $configuration,
        load_app      => sub { return $self->_load_in_interpreter(@_) },
        mounts        => [ $self->_mounts ],
    );
    $server->enter_again($self->{directory}) if defined $self->{directory};
    $self->_reload_on_change($server)        if $self->_reloads;
    return $server;
}

# Loads the application in an interpreter. Files of variables are read again, because new code may need new
# values.
sub _load_in_interpreter {
    my ($self, $number, $group) = @_;
    @{$self}{qw(worker_num group)} = ($number, $group);
    my $app = eval {
        PAGI::Server::MountPlan::enter($_, $self->{options})
            for grep { $group && ($_->{group} // 0) == $group } $self->_mounts;
        $self->_read_env_files;
        $self->_prepared_app;
    };
    die _line(ref $@ eq 'SCALAR' ? ${$@} : $@) . "\n" if !$app;
    return $app;
}

# Whether the application is loaded again when files change.
sub _reloads {
    my ($self) = @_;
    my $options = $self->{options};
    die \'--reload-dir means nothing without --reload' if $options->{reload_dir} && !$options->{reload};
    return 0                                           if !$options->{reload};
    die \'--reload works with PAGI::Server, not with --server' if defined $options->{server};
    my $app = $options->{app};
    die \'--reload needs an application that can be loaded again: a file, a module, or -e' if ref $app;
    return 1;
}

# Watches the application's files.
sub _reload_on_change {
    my ($self, $server) = @_;
    my $options = $self->{options};
    my @mounts  = $self->_mounts;
    my @names   = @mounts ? map { $_->{name} // () } @mounts : $options->{app} // ();
    return $server->reload_on_change(PAGI::Server::Sources::to_watch($options, @names));
}

# Adds the line of the configuration file to an error about a value from it.
sub _located {
    my ($self, $problem) = @_;
    return $problem if !@{ $self->{noted} || [] };
    return PAGI::Server::ConfigFile->located($problem, $self->{options}{config}, @{ $self->{noted} || [] });
}

# ---- Running ------------------------------------------------------------------------------------

sub _serve {
    my ($self, $server) = @_;
    my $options = $self->{options};
    $self->_load_future_io;
    # Sets the text of ps again: loading a file may have replaced it by the file's path.
    Peregrine::Fork::name_program($self->{title}) if defined $self->{title};
    my $identity = Peregrine::Daemon->identity($options->{user}, $options->{group});
    umask Peregrine::Place::mode($options->{umask}) if defined $options->{umask};
    my $errors =
        defined $options->{error_log} ? PAGI::Server::ErrorLog->create($options->{error_log}) : undef;
    my $ready    = $self->_choose_front($errors);
    my $pid_file = defined $options->{pid} ? PAGI::Server::PidFile->create($options->{pid}) : undef;
    $server->keep_pid_file($pid_file) if $pid_file && $server->isa('Peregrine::Server');
    my $run     = $server->isa('Peregrine::Server') ? \&_run_here : \&_run_there;
    my $process = $$;
    $errors->take_over if $errors;
    my $status = eval { $self->$run($server, $identity, $ready, $errors) };
    my $error  = $@;
    Peregrine::Process->end_child($self->_log, $error) if $process != $$;
    $pid_file->remove                                  if $pid_file;
    return $status                                     if defined $status;
    $error = 'Error: ' . _start_problem($error);
    # The error goes to the terminal as well as to the log.
    print STDERR PAGI::Server::Log->line($self->{options}{log_format}, error => $error) if $errors;
    $errors->let_go                                                                     if $errors;
    die "$error\n";
}

# Goes to the background if an option says so. Returns the function to call when the server has started.
sub _choose_front {
    my ($self, $errors) = @_;
    return sub { $errors->settle if $errors }
        if !$self->{options}{daemonize} || Peregrine::Handover->from_environment;
    $self->_log->warn('--daemonize without --error-log: nobody will be told of what goes wrong')
        if !$errors;
    return Peregrine::Daemon->daemonize($errors);
}

sub _log {
    my ($self) = @_;
    my $options = $self->{options};
    return PAGI::Server::Log->new(
        name   => 'PAGI',
        level  => $options->{log_level},
        format => $options->{log_format},
        quiet  => $options->{quiet}
    );
}

# Does everything that needs rights before they are given up, and starts the application after that.
sub _run_here {
    my ($self, $server, $identity, $ready, $errors) = @_;
    $server->own_loop;
    if ($identity) {
        $server->open_listeners(%$identity{qw(uid gid)});
        Peregrine::Daemon->give($errors->handle, $identity->{uid}) if $errors;
    }
    # A master whose mounts have users of their own keeps the rights to start their workers; no other process
    # keeps them.
    if (grep { $_->{identity} } $self->_mounts) {
        Peregrine::Fork::children_become($identity);
    }
    elsif ($identity) { Peregrine::Daemon->become($identity) }
    Peregrine::Daemon->forgo_privileges if $self->{options}{no_new_privs};
    my $reopen = sub {
        my $problem = $errors->reopen(@_);
        $self->_log->error($problem) if defined $problem;
    };
    $server->on_reopen_logs($reopen) if $errors;
    $server->start or return OK;
    $ready->();
    return defined $server->run_loop ? FAILED : OK;
}

# Runs a server of another class, which has no other method for that.
sub _run_there {
    my ($self, $server, $identity, $ready) = @_;
    Peregrine::Daemon->become($identity) if $identity;
    Peregrine::Daemon->forgo_privileges  if $self->{options}{no_new_privs};
    $ready->();
    $server->run;
    return OK;
}

sub _start_problem {
    my ($error) = @_;
    if (blessed $error && $error->isa('Future::Exception') && $error->category eq 'listen') {
        my ($errno, $host, $port) = $error->details;
        return "Port $port is already in use on $host"            if defined $port && $errno == EADDRINUSE;
        return "Permission denied to bind to port $port on $host" if defined $port && $errno == EACCES;
        return _line($error->message);
    }
    my $problem = PAGI::Server::Options::problem_in($error);
    return _line($problem) if defined $problem;
    return _line($error) =~ s/\AError: //r
        if blessed $error && $error->isa('Future::Exception') && $error->category eq 'workers';
    return _line("starting server: $error");
}

sub _line {
    my ($text) = @_;
    $text =~ s/\s+\z//;
    return $text;
}

# Loads the loop's implementation of Future::IO, so that applications can use that without knowing the loop.
sub _load_future_io {
    my ($self) = @_;
    my $level = $INC{'Future/IO.pm'} ? 'warn' : 'debug';
    # IO::Async brings the implementation along, even if Future::IO is not installed. Expected: versions of
    # the two that do not fit each other.
    my $fits = eval {
        Peregrine::Optional::load('Future::IO') && Peregrine::Optional::load('Future::IO::Impl::IOAsync');
        1;
    };
    return if $fits;
    my $problem = _line($@) =~ s/\n.*//sr;
    $self->_log->$level("Future::IO does not use the server's loop: $problem");
    return;
}

# ---- Output -------------------------------------------------------------------------------------

# Prints the options that would be in force, in the words of a configuration file.
sub _check {
    my ($self, $server) = @_;
    my $options = $self->{options};
    Peregrine::Daemon->identity($options->{user}, $options->{group});
    PAGI::Server::TLS->tell_outdated($self->_log, $server->certificates) if $server->isa('Peregrine::Server');
    my $check = PAGI::Server::Check->new($server, $options);
    my @lines = ('# ' . ref($server) . ' would run:', 'env = ' . $self->mode, $check->lines);
    $self->_print(join("\n", @lines) . "\n");
    my @problems = $check->problems;
    $self->_failed($self->program . ': ' . $self->_located($_)) for @problems;
    return @problems ? FAILED : OK;
}

sub _version {
    my ($self) = @_;
    return $self->_print(
        $self->program . ' (' . join(', ', 'PAGI 0.3', PAGI::Server::Banner::versions()) . ")\n");
}

sub _help {
    require Pod::Usage;    # with what it loads, a fifth of the time of a start
    Pod::Usage::pod2usage(
        -input    => $0,
        -exitval  => 'NOEXIT',
        -verbose  => 99,
        -sections => [qw(NAME SYNOPSIS OPTIONS)],
        -output   => \*STDOUT,
    );
    return OK;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Runner - what the pagi-server command does

=head1 SYNOPSIS

    use PAGI::Server::Runner;
    exit PAGI::Server::Runner->run(@ARGV);

    my $runner = PAGI::Server::Runner->new(port => 0, quiet => 1);
    $runner->load_app('My::App', root => '/srv/data');
    my $server = $runner->load_server;    # a PAGI::Server, to be added to a loop

=head1 DESCRIPTION

Reads the command line and the configuration file, loads the application, runs a L<PAGI::Server> until it is
stopped by a signal.

The order of a start: addresses are bound and the access log is opened, then the process becomes the user that
it is to be, then the application's lifespan startup runs, then connections are accepted. Without a change of
user the startup comes first.

=head1 METHODS

Those that take options die with a text that names what is wrong with them; L</run> tells it
and returns a status.

=head2 new

    my $runner = PAGI::Server::Runner->new(app => 'app.pl', port => 8080, env => 'production');

Takes the options of L<pagi-server> and of L<PAGI::Server> by the names that a configuration file has for them
(with C<_>). C<app> is a name or a code reference. They are what applies where neither the command line nor a
configuration file says otherwise.

=head2 parse_options

    $runner->parse_options(@ARGV);

Reads words of a command line, and the configuration file that they name. Returns the runner. May be called
again; what comes later wins.

=head2 mode

    my $mode = $runner->mode;    # development, production, none or a word of your own

By C<env>, else C<PAGI_ENV>, else whether standard input is a terminal. Sets C<PAGI_ENV>.

=head2 load_app

    my $app = $runner->load_app;
    my $app = $runner->load_app('My::App', root => '/srv/data');

Loads the application that the options name, or the one given with arguments for its C<new>, and returns its
code reference. See L<PAGI::Server::AppLoader>.

=head2 prepare_app

    my $app = $runner->prepare_app;

The application as the server gets it: loaded, if it is not yet, and in the mode C<development> within
C<PAGI::Middleware::Lint>, if that is installed and C<default_middleware> not off.

=head2 load_server

    my $server = $runner->load_server;

Makes the server with these options and L</prepare_app>'s application: a L<PAGI::Server>, or an object of the
class that the option C<server> names. It neither listens nor is in a loop yet.

=head2 run

    my $status = PAGI::Server::Runner->run('app.pl', '--port', 8080);
    my $status = $runner->run;

Reads the words, if there are any, and does what C<pagi-server> does. Returns the exit status: 0 after a
stop by TERM or INT, 1 when the application cannot be loaded, the server cannot start, or an exception in
the event loop ended it, 2 when the command line or the configuration file is wrong. Problems are written
to standard error.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
