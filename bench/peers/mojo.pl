# Mojolicious below its router: what its HTTP server and message objects cost.
use v5.36;
use Mojo::Server::Daemon;

my ($port) = @ARGV;
my $daemon = Mojo::Server::Daemon->new(
    listen       => ["http://127.0.0.1:$port"],
    max_requests => 1_000_000_000,
    silent       => 1,
);
$daemon->unsubscribe('request')->on(
    request => sub ($self, $transaction) {
        $transaction->res->code(200);
        $transaction->res->headers->content_type('text/plain');
        $transaction->res->body("Hello, World!\n");
        $transaction->resume;
    }
);
$daemon->run;
