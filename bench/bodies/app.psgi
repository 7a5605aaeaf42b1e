# Takes bodies, and gives some: /drop, /echo and /answer?BYTES; / for who asks whether it is there.
use v5.36;

my $PIECE = 65_536;
my %answers;    # by length

my %does = (
    '/drop' => sub ($env) {
        my ($length, $piece) = (0);
        while (my $got = $env->{'psgi.input'}->read($piece, $PIECE)) { $length += $got }
        return "$length\n";
    },
    '/echo' => sub ($env) {
        my $all = '';
        1 while $env->{'psgi.input'}->read($all, $PIECE, length $all);
        return $all;
    },
    '/answer' => sub ($env) { return $answers{ $env->{QUERY_STRING} } //= 'x' x $env->{QUERY_STRING} },
    '/'       => sub ($) { return "hello\n" },
);

sub ($env) {
    my $body = $does{ $env->{PATH_INFO} }->($env);
    return [ 200, [ 'Content-Type' => 'text/plain', 'Content-Length' => length $body ], [$body] ];
};
