# Packs and unpacks the fuzzer's inputs, engine/test/corpus/TARGET.seeds: one a line, in base64, sorted.
#   corpus.pl unpack SEEDS NAMED FOLDER   writes these inputs and the files of the folder NAMED into FOLDER
#   corpus.pl pack SEEDS NAMED FOLDER     packs the files of FOLDER that are not in the folder NAMED
use v5.36;
use Digest::SHA  qw(sha1_hex);
use MIME::Base64 qw(decode_base64 encode_base64);

@ARGV == 4 or die "corpus.pl unpack|pack SEEDS NAMED FOLDER\n";
my ($verb, $seeds, $named, $folder) = @ARGV;
my %verbs = (unpack => \&unpack_inputs, pack => \&pack_inputs);
($verbs{$verb} // die "corpus.pl has no '$verb'\n")->();

sub unpack_inputs () {
    my @lines = -e $seeds ? split /\n/, content($seeds) : ();
    for my $input ((map { decode_base64($_) } @lines), inputs_in($named)) {
        write_file("$folder/" . sha1_hex($input), $input);
    }
    return;
}

sub pack_inputs () {
    my %has_name = map { $_                           => 1 } inputs_in($named);
    my %lines    = map { encode_base64($_, '') . "\n" => 1 }
        grep { !$has_name{$_} } inputs_in($folder);
    write_file($seeds, join '', sort keys %lines);
    return;
}

sub inputs_in ($place) {
    return map { content($_) } grep { -f $_ } glob "$place/*";
}

sub content ($path) {
    open my $in, '<:raw', $path or die "$path: $!\n";
    local $/ = undef;
    return scalar <$in>;
}

sub write_file ($path, $content) {
    open my $out, '>:raw', $path or die "$path: $!\n";
    print {$out} $content or die "$path: $!\n";
    close $out            or die "$path: $!\n";
    return;
}
