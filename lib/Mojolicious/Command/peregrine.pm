package Mojolicious::Command::peregrine;

# The command `./app.pl peregrine`: runs the program of that name, with the script as its application.

use strict;
use warnings;

use Mojo::Base 'Mojolicious::Command';

use Config;
use File::Basename qw(dirname);
use File::Spec     ();

our $VERSION = '0.003000';

has description => 'Start application with the Peregrine server';
has usage       => <<'END';
Usage: APPLICATION peregrine [OPTIONS]

  ./myapp.pl peregrine
  ./myapp.pl peregrine -l http://*:8080 --workers 4
  ./myapp.pl peregrine -m production -l 'https://*:8443?cert=app.pem&key=app.key'

Options:
  -h, --help              Show this summary of available options
      --home <path>       Path to home directory of your application
  -l, --listen <location> One or more locations you want to listen on, as for daemon or peregrine
  -m, --mode <name>       Operating mode for your application
  -p, --proxy [<network>] Activate reverse proxy support
  All other options are those of the command peregrine: see peregrine --help
END

# Runs another program, because the script has loaded Mojo::IOLoop, whose reactor cannot be changed any more.
sub run {
    my ($self, @arguments) = @_;
    my @words   = (_program(), _words(@arguments), File::Spec->rel2abs($0));
    my @include = map { '-I' . File::Spec->rel2abs($_) } grep { !ref } @INC;
    delete @ENV{qw(MOJO_REACTOR MOJO_APP_LOADER MOJO_EXE)};
    exec {$^X} $^X, @include, @words or die "Cannot run $words[0]: $!\n";
}

# Words of the daemon's command line in the form of the program `peregrine`.
sub _words {
    my (@arguments) = @_;
    my @words;
    while (@arguments) {
        my $word = shift @arguments;
        if ($word =~ /\A(?:-l|--listen)(?:=(.*))?\z/s) {
            my $place = $1 // shift @arguments // die "Option $word needs a location\n";
            push @words, _listen($place);
        }
        elsif ($word =~ /\A(?:-p|--proxy)\z/) {
            $ENV{MOJO_REVERSE_PROXY}   = 1;
            $ENV{MOJO_TRUSTED_PROXIES} = join ',', $ENV{MOJO_TRUSTED_PROXIES} // (), shift @arguments
                if @arguments && $arguments[0] =~ /\A[0-9a-f.:]+(?:\/[0-9]+)?\z/i;
        }
        else { push @words, $word }
    }
    return @words;
}

sub _listen {
    my ($place) = @_;
    return ('--listen', $place) if $place !~ m{\A[a-z+]+://};
    require Mojo::Server::Peregrine::Hypnotoad;
    my $settings = 'Mojo::Server::Peregrine::Hypnotoad';
    return ('--listen', $settings->place($place), $settings->is_shared($place) ? '--reuseport' : ());
}

# The program `peregrine` beside this module, as it was built or installed.
sub _program {
    my $lib     = dirname(dirname(dirname(File::Spec->rel2abs(__FILE__))));
    my @folders = (
        File::Spec->catdir($lib, File::Spec->updir, 'script'),
        File::Spec->catdir($lib, File::Spec->updir, 'bin'),
        @Config{qw(installsitescript installvendorscript installscript)},
        File::Spec->path
    );
    my ($program) = grep { -f } map { File::Spec->catfile($_, 'peregrine') } grep { length } @folders;
    return $program // die "There is no program peregrine in @folders\n";
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojolicious::Command::peregrine - start an application of Mojolicious with Peregrine

=head1 SYNOPSIS

    ./myapp.pl peregrine
    ./myapp.pl peregrine -l http://*:8080 --workers 4
    script/my_app peregrine -m production --http2

=head1 DESCRIPTION

Beside C<daemon> and C<prefork>: runs L<peregrine> with the script, which L<Mojo::Server::Peregrine> serves.
Its options are those of L<peregrine>, but C<-l> is a location, as for C<daemon>, and C<-p> activates support
for reverse proxies.

=head1 ATTRIBUTES

=head2 description

=head2 usage

=head1 METHODS

=head2 run

Becomes the other program.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
