package PAGI::Server::Completion;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::CommandLine;
use PAGI::Server::Options;
use PAGI::Server::Options::Type;

sub script {
    my ($class, $shell, $program) = @_;
    $program //= 'pagi-server';
    # The name of the function is the name of the file in which zsh finds it.
    return _zsh($program, "_$program") if $shell eq 'zsh';
    return _bash($program, '_' . $program =~ tr/-/_/r);
}

# Each option as the flags that are typed for it, and the row itself.
sub _flags {
    my @list;
    for my $option (PAGI::Server::Options::all()) {
        my @typed = PAGI::Server::CommandLine::typed_all($option) or next;
        push @list, [ $option, @typed ];
    }
    return @list;
}

# The name of an option's value tells what a shell offers for it: a flag of bash's compgen, and a function of
# zsh.
my @OFFERS = (
    [ DIRECTORY => '-d', '_directories' ],
    [ USER      => '-u', '_users' ],
    [ GROUP     => '-g', '_groups' ],
    [ FILE      => '-f', '_files' ],
);

sub _offer {
    my ($option) = @_;
    my ($offer)  = grep { ($option->{arg} // '') =~ /\b$_->[0]\b/ } @OFFERS;
    return @{ $offer || [] }[ 1, 2 ];
}

sub _words_behind {
    my ($option) = @_;
    my $values = $option->{offer} || $option->{of};
    return join ' ', @$values if $values;
    return 'clf combined common tiny json' if $option->{type} eq 'format';
    return;
}

sub _bash {
    my ($program, $function) = @_;
    my (@all, @cases);
    for my $entry (_flags()) {
        my ($option, @typed) = @$entry;
        push @all, @typed;
        next if PAGI::Server::Options::Type::is_switch($option);
        my $pattern = join '|', grep { !/\A--no-/ } @typed;
        my $words   = _words_behind($option);
        my ($flag)  = _offer($option);
        $flag = "-W '$words'" if defined $words;
        my $offer = defined $flag ? qq{\$(compgen $flag -- "\$word")} : '';
        push @cases, "        $pattern) COMPREPLY=($offer); return ;;\n";
    }
    my $flags = join ' ', @all;
    return <<"SCRIPT";
# bash completion for $program
$function() {
    local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}"
    # --flag=value comes as three words.
    if [[ "\$word" == = ]]; then
        word=
    elif [[ "\$before" == = ]]; then
        before="\${COMP_WORDS[COMP_CWORD-2]}"
    fi
    case "\$before" in
@{[ join '', @cases ]}    esac
    if [[ "\${COMP_WORDS[1]}" == trace && \$COMP_CWORD == 2 ]]; then
        COMPREPLY=(\$(compgen -W "\$(pgrep -f $program 2>/dev/null)" -- "\$word"))
    elif [[ "\$word" == -* ]]; then
        COMPREPLY=(\$(compgen -W '$flags' -- "\$word"))
    else
        COMPREPLY=(\$(compgen -f -- "\$word"))
        if [[ \$COMP_CWORD == 1 ]]; then
            COMPREPLY+=(\$(compgen -W 'certificates publish reload renew status trace' -- "\$word"))
        fi
    fi
}
complete -o filenames -F $function $program
SCRIPT
}

sub _zsh {
    my ($program, $function) = @_;
    my @lines;
    for my $entry (_flags()) {
        my ($option, @typed) = @$entry;
        my $about = _first_sentence(PAGI::Server::Options::about($option));
        my $words = _words_behind($option);
        my (undef, $function_of_value) = _offer($option);
        my $offer  = defined $words                                  ? "($words)" : $function_of_value // ' ';
        my $behind = PAGI::Server::Options::Type::is_switch($option) ? ''         : ":$option->{name}:$offer";
        for my $flag (@typed) {
            my $value = $flag           =~ /\A--no-/ ? ''  : $behind;
            my $equal = $value && $flag =~ /\A--/    ? '=' : '';
            push @lines, "    '" . ($option->{many} ? '*' : '') . "$flag$equal\[$about]$value'";
        }
    }
    my $lines = join " \\\n", @lines;
    return <<"SCRIPT";
#compdef $program
# zsh completion for $program
$function() {
    _arguments -s \\
$lines \\
    '1:application or command:{ compadd certificates publish reload renew status trace; _files }' \\
    '*:file:_files'
}
if [ "\$funcstack[1]" = $function ]; then $function "\$@"; else compdef $function $program; fi
SCRIPT
}

# The first sentence of a POD text, without markup, quotes and brackets, which have a meaning for the shell.
sub _first_sentence {
    my ($pod) = @_;
    $pod =~ s/[A-Z]<+ ?(?:([^|<>]*)\|)?([^<>]*?) ?>+/defined $1 ? $1 : $2/ge;
    my ($sentence) = $pod =~ /\A(.*?)(?:[.:](?:\s|\z)|\z)/s;
    $sentence =~ tr/'[]:\\//d;
    return $sentence;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Completion - shell completion for pagi-server

=head1 SYNOPSIS

    print PAGI::Server::Completion->script('bash');

=head1 METHODS

=head2 script

    my $script = PAGI::Server::Completion->script('zsh', 'peregrine');

A script for C<bash> or C<zsh>, made from L<PAGI::Server::Options::Table>, for a command of that name;
C<pagi-server> if there is none. C<make install> puts the scripts of C<pagi-server> and C<peregrine> where
shells look for them: F<share/bash-completion/completions> and F<share/zsh/site-functions>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
