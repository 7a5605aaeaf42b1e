package TestHPACK;

# Header blocks of HTTP/2 (RFC 7541): a decoder for a server's blocks, and an encoder that adds nothing to
# tables unless it is asked to.

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT_OK = qw(block huffman indexed integer literal table_size);

# The static table (appendix A); fields without a value here have none there.
my @STATIC = map { [ split /=/, $_, 2 ] } split ' ', <<'END';
:authority= :method=GET :method=POST :path=/ :path=/index.html :scheme=http :scheme=https :status=200
:status=204 :status=206 :status=304 :status=400 :status=404 :status=500 accept-charset=
accept-encoding=gzip,~deflate accept-language= accept-ranges= accept= access-control-allow-origin= age=
allow= authorization= cache-control= content-disposition= content-encoding= content-language=
content-length= content-location= content-range= content-type= cookie= date= etag= expect= expires= from=
host= if-match= if-modified-since= if-none-match= if-range= if-unmodified-since= last-modified= link=
location= max-forwards= proxy-authenticate= proxy-authorization= range= referer= refresh= retry-after=
server= set-cookie= strict-transport-security= transfer-encoding= user-agent= vary= via= www-authenticate=
END
$_->[1] =~ tr/~/ / for @STATIC;

# Bits of the code of each byte and of EOS. The code is canonical, so the lengths define it (appendix B).
my @LENGTHS = split ' ', <<'END';
13 23 28 28 28 28 28 28 28 24 30 28 28 30 28 28 28 28 28 28 28 28 30 28
28 28 28 28 28 28 28 28 6 10 10 12 13 6 8 11 10 10 8 11 8 6 6 6
5 5 5 6 6 6 6 6 6 6 7 8 15 6 12 10 13 6 7 7 7 7 7 7
7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 8 7 8 13 19 13 14 6
15 5 6 5 6 5 6 6 6 5 7 7 6 6 6 5 6 7 6 5 5 6 7 7
7 7 7 15 11 14 13 28 20 22 20 20 22 22 22 23 22 23 23 23 23 23 24 23
24 24 22 23 24 23 23 23 23 21 22 23 22 23 23 24 22 21 20 22 22 23 23 21
23 22 22 24 21 22 23 23 21 21 22 21 23 22 23 23 20 22 22 22 23 22 22 23
26 26 20 19 22 23 22 25 26 26 26 27 27 26 24 25 19 21 26 27 27 26 27 24
21 21 26 26 28 27 27 27 20 24 20 21 22 21 21 23 22 22 25 25 24 24 26 23
26 27 26 26 27 27 27 27 27 28 27 27 27 27 27 26 30
END

my (@CODES, %SYMBOLS);    # by byte, and by code: strings of bits
{
    my ($code, $length) = (0, 0);
    for my $symbol (sort { $LENGTHS[$a] <=> $LENGTHS[$b] || $a <=> $b } 0 .. $#LENGTHS) {
        $code <<= $LENGTHS[$symbol] - $length;
        $length                     = $LENGTHS[$symbol];
        $CODES[$symbol]             = sprintf '%0*b', $length, $code++;
        $SYMBOLS{ $CODES[$symbol] } = chr $symbol if $symbol < 256;
    }
}

# ---- Encoding ---------------------------------------------------------------------------------------

# A number that begins in the lower `bits` of `first` (section 5.1).
sub integer {
    my ($first, $bits, $number) = @_;
    my $most = (1 << $bits) - 1;
    return chr($first | $number) if $number < $most;
    my $bytes = chr($first | $most);
    for ($number -= $most; $number >= 128; $number >>= 7) { $bytes .= chr($number & 127 | 128) }
    return $bytes . chr $number;
}

sub huffman {
    my ($text) = @_;
    my $bits   = join '', map { $CODES[ ord $_ ] } split //, $text;
    $bits .= '1' x (-length($bits) % 8);
    return pack 'B*', $bits;
}

sub _string {
    my ($text, $squeeze) = @_;
    my $coded = $squeeze ? huffman($text) : $text;
    return integer($squeeze ? 128 : 0, 7, length $coded) . $coded;
}

# A literal field. Options: `keep` adds it to the table, `name` is an index in place of its name, `huffman`.
sub literal {
    my ($name, $value, %options) = @_;
    my ($first, $bits) = $options{keep} ? (64, 6) : (0, 4);
    return
          integer($first, $bits, $options{name} || 0)
        . ($options{name} ? '' : _string($name, $options{huffman}))
        . _string($value, $options{huffman});
}

# A field of a table by its index.
sub indexed {
    my ($index) = @_;
    return integer(128, 7, $index);
}

# Sets the size of the table, in bytes.
sub table_size {
    my ($bytes) = @_;
    return integer(32, 5, $bytes);
}

# A block of literal fields, given as pairs.
sub block {
    my (@fields) = @_;
    my $bytes = '';
    while (my ($name, $value) = splice @fields, 0, 2) { $bytes .= literal($name, $value) }
    return $bytes;
}

# ---- Decoding ---------------------------------------------------------------------------------------

sub new {
    my ($class) = @_;
    return bless { table => [], bytes => 0, limit => 4096 }, $class;
}

# The fields of a block as a list of [name, value]. Dies unless it can be decoded.
sub decode {
    my ($self, $block) = @_;
    my $at = 0;
    my @fields;
    while ($at < length $block) {
        my $first = ord substr $block, $at, 1;
        if ($first & 128) {
            push @fields, [ @{ $self->_entry(_number($block, \$at, 7)) } ];
        }
        elsif (($first & 224) == 32) {
            $self->_resize(_number($block, \$at, 5));
        }
        else {
            my $keeps = $first & 64;
            my $index = _number($block, \$at, $keeps ? 6 : 4);
            my $name  = $index ? $self->_entry($index)->[0] : _text($block, \$at);
            my $field = [ $name, _text($block, \$at) ];
            push @fields, $field;
            $self->_keep([@$field]) if $keeps;
        }
    }
    return @fields;
}

sub _number {
    my ($block, $at, $bits) = @_;
    my $most   = (1 << $bits) - 1;
    my $number = ord(substr $block, $$at++, 1) & $most;
    return $number if $number < $most;
    for (my $shift = 0;; $shift += 7) {
        die "a number is cut\n" if $$at >= length $block;
        my $byte = ord substr $block, $$at++, 1;
        $number += ($byte & 127) << $shift;
        return $number if $byte < 128;
    }
}

sub _text {
    my ($block, $at) = @_;
    my $squeezed = ord(substr $block, $$at, 1) & 128;
    my $length   = _number($block, $at, 7);
    die "a string is cut\n" if $$at + $length > length $block;
    my $bytes = substr $block, $$at, $length;
    $$at += $length;
    return $bytes if !$squeezed;
    my ($text, $code) = ('', '');

    for my $bit (split //, unpack 'B*', $bytes) {
        $code .= $bit;
        next if !defined $SYMBOLS{$code};
        $text .= $SYMBOLS{$code};
        $code = '';
    }
    die "the padding of a string is '$code'\n" if $code !~ /\A1{0,7}\z/;
    return $text;
}

sub _entry {
    my ($self, $index) = @_;
    die "index 0\n"              if !$index;
    return $STATIC[ $index - 1 ] if $index <= @STATIC;
    return $self->{table}[ $index - @STATIC - 1 ] // die "no entry $index\n";
}

sub _size {
    my ($field) = @_;
    return 32 + length($field->[0]) + length $field->[1];
}

sub _keep {
    my ($self, $field) = @_;
    unshift @{ $self->{table} }, $field;
    $self->{bytes} += _size($field);
    return $self->_shrink;
}

sub _resize {
    my ($self, $limit) = @_;
    die "a table of $limit bytes\n" if $limit > 4096;
    $self->{limit} = $limit;
    return $self->_shrink;
}

sub _shrink {
    my ($self) = @_;
    while ($self->{bytes} > $self->{limit}) { $self->{bytes} -= _size(pop @{ $self->{table} }) }
    return;
}

1;
