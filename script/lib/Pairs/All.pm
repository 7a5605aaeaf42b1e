# Runs the rows of script/pairs, a few at a time, each in a process of its own with a time limit.
package Pairs::All;
use v5.36;
use Certificates;
use File::Temp ();
use JSON::PP   ();
use List::Util qw(shuffle);
use POSIX      qw(WNOHANG);
use Pairs::Array;
use Pairs::Run;
use Pairs::Table;
use TestTools   qw(patience);
use Time::HiRes qw(sleep time);

use constant ROW_S => 150;    # seconds for one row

sub new ($class, %given) { return bless {%given}, $class }

sub rows ($self) {
    return ({ %{ Pairs::Table::from_words($self->{row}) } }) if defined $self->{row};
    my $array = Pairs::Array->new(factors => [ Pairs::Table::factors() ], never => [ Pairs::Table::never() ]);
    return $array->rows($self->{seed}, Pairs::Table::always());
}

sub main ($self) {
    my @rows = $self->rows;
    say "seed $self->{seed}, ${\scalar @rows} rows";
    # The rows of Pairs::Table::always come last: without the shuffle a slice would end before them every day.
    @rows = grep { !Pairs::Table::is_long($_) } shuffle @rows if $self->{slice};
    if ($self->{list}) {
        say Pairs::Table::in_words($_) for @rows;
        return 0;
    }
    alarm 0;
    $self->{dir}          = File::Temp->newdir('pairs-XXXXXX', TMPDIR => 1);
    $self->{certificates} = Certificates->new->authority('server');
    my $begun = time;
    my ($done, $wrong) = $self->_all(@rows);
    printf "%d of %d rows in %.0f s, %d with findings\n", $done, scalar @rows, time - $begun, $wrong;
    return $wrong || !$done ? 1 : 0;
}

sub _all ($self, @rows) {
    my ($begun, $done, $wrong, %running) = (time, 0, 0);
    while (@rows || %running) {
        my $late = $self->{slice} && time - $begun > $self->{slice};
        @rows = () if $late;
        while (@rows && keys %running < $self->{jobs}) {
            my $one = $self->_start(shift @rows);
            $running{ $one->{pid} } = $one;
        }
        for my $one (values %running) {
            _give_up($one) if time > $one->{end};
            next           if waitpid($one->{pid}, WNOHANG) != $one->{pid};
            $one->{why} = time > $one->{end} ? 'no end in time' : "wait status $?";
            delete $running{ $one->{pid} };
            _give_up($one) if !-e $one->{file};    # a row that died has not ended its server
            $done++;
            $wrong++ if $self->_tell($one);
        }
        sleep 0.05;
    }
    return ($done, $wrong);
}

# Kills the row's process and the process group of its server.
sub _give_up ($one) {
    kill KILL => $one->{pid};
    my ($group) = TestTools::content("$one->{file}.group") =~ /\A(\d+)\z/ or return;
    kill KILL => -$group;
    return;
}

sub _start ($self, $row) {
    my $number = ++$self->{number};
    my $file   = "$self->{dir}/$number";
    my $pid    = fork // die "fork: $!\n";
    return { pid => $pid, row => $row, file => $file, begun => time, end => time + patience(ROW_S) } if $pid;
    my $run = Pairs::Run->new(
        row          => $row,
        root         => $self->{root},
        tree         => $self->{base},
        certificates => $self->{certificates},
        told         => "$file.group"
    );
    $run->run;
    open my $out, '>', $file or die "$file: $!\n";
    my %told = (findings => [ $run->findings ], log => $run->log);
    print {$out} JSON::PP->new->canonical->encode(\%told);
    close $out or die "$file: $!\n";
    undef $run;
    POSIX::_exit(0);
}

# Prints the findings of a row; returns their number.
sub _tell ($self, $one) {
    my $text = TestTools::content($one->{file});
    my $result =
        $text eq '' ? { findings => [ 'the row gave up: ' . $one->{why} ] } : JSON::PP::decode_json($text);
    my @found = @{ $result->{findings} };
    my @open  = $self->{slice} ? grep { Pairs::Table::is_open($one->{row}, $_) } @found : ();
    my %known = map                   { $_ => 1 } @open;
    @found = grep { !$known{$_} } @found;
    my $words = Pairs::Table::in_words($one->{row});
    printf "%s %.0f s: script/pairs --row '%s'\n", @found ? 'not ok' : 'ok', time - $one->{begun}, $words;
    say "    $_"        for @found;
    say "    known: $_" for @open;
    print $result->{log} =~ s/^/    | /mgr if @found && $self->{row};
    return scalar @found;
}

1;
