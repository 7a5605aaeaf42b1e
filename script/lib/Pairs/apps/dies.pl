# An application whose startup dies.
use v5.36;
use Future::AsyncAwait;
async sub ($scope, $receive, $send) {
    if ($scope->{type} eq 'lifespan') {
        await $receive->();
        die "the startup dies on purpose\n";
    }
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => "hello\n" });
};
