# PAGI::Middleware, its Builder and SecurityHeaders: the example of PAGI::Server's article, the manuals' own,
# and what is said of wrong uses.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use File::Spec ();
use File::Temp ();
use Future;
use Future::AsyncAwait;
use PAGI::Middleware;
use PAGI::Middleware::Builder;
use PAGI::Middleware::SecurityHeaders;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(content for_this_perl);

plan skip_all => "PAGI::Middleware is another distribution's"
    if !$PAGI::Middleware::VERSION
    || content($INC{'PAGI/Middleware.pm'}) !~ /^# Peregrine's own\./m;

# Calls an application as a server would; what it sent, and the scope that it was called with at last.
my $seen;

sub call ($app, %scope) {
    my %whole = (type => 'http', path => '/', scheme => 'http', root_path => '', headers => [], %scope);
    my @sent;
    undef $seen;
    $app->({%whole}, sub { Future->fail("no event\n") }, sub ($event) { push @sent, $event; Future->done })
        ->get;
    return @sent;
}

sub headers_of (@sent) {
    return { map { @$_ } @{ $sent[0]{headers} } };
}

sub answering ($text, @headers) {
    return async sub ($scope, $receive, $send) {
        $seen = $scope;
        return if $scope->{type} eq 'lifespan';
        await $send->({ type => 'http.response.start', status => 200, headers => [@headers] });
        await $send->({ type => 'http.response.body', body => $text });
    };
}

# Middleware that leaves its name in the scope and in the response.
package My::Mark {
    our @ISA = ('PAGI::Middleware');
    sub _init ($self, $config) { $self->{begun} = 1; return }

    sub wrap ($self, $app) {
        die "not begun\n" if !$self->{begun};
        return async sub ($scope, $receive, $send) {
            my $name  = $self->{config}{name};
            my $inner = $self->modify_scope($scope, { 'my.marks' => ($scope->{'my.marks'} // '') . $name });
            my $added = $self->intercept_send(
                $send,
                async sub ($event, $original) {
                    push @{ $event->{headers} }, [ 'x-mark', $name ] if $event->{headers};
                    await $original->($event);
                }
            );
            await $app->($inner, $receive, $added);
        };
    }
}

subtest 'the example of the article' => sub {
    my $my_app = answering('Hello');

    my $app = builder {
        enable 'SecurityHeaders',
            x_frame_options           => 'DENY',                  # Clickjacking protection
            x_content_type_options    => 'nosniff',               # MIME sniffing protection
            content_security_policy   => "default-src 'self'",    # XSS protection
            strict_transport_security => 'max-age=31536000';      # HSTS (HTTPS only)
        $my_app;
    };

    my %common = (
        'x-frame-options'         => 'DENY',
        'x-content-type-options'  => 'nosniff',
        'content-security-policy' => q{default-src 'self'},
        'x-xss-protection'        => '1; mode=block',
        'referrer-policy'         => 'strict-origin-when-cross-origin',
    );
    is_deeply(headers_of(call($app)), \%common, 'over plain HTTP');
    is_deeply(
        headers_of(call($app, scheme => 'https')),
        { %common, 'strict-transport-security' => 'max-age=31536000' },
        'over TLS'
    );
};

subtest 'SecurityHeaders' => sub {
    my %defaults = map { s/_/-/gr }
        content('lib/PAGI/Middleware/SecurityHeaders.pm') =~ /^    (\w+_\w+)  +(?!none|default)(\S.*)$/mg;
    my $plain = builder { enable 'SecurityHeaders'; answering('x') };
    is(scalar keys %defaults, 4, 'the manual has four defaults');
    $defaults{'x-frame-options'} =~ s/_/-/g;
    is_deeply(headers_of(call($plain)), \%defaults, '... and these are sent');

    my @own     = ([ 'X-Frame-Options', 'DENY' ]);
    my @given   = (x_content_type_options => undef, permissions_policy => 'camera=()');
    my $app     = builder { enable 'SecurityHeaders', @given; answering('x', @own) };
    my ($start) = call($app);
    is_deeply(
        [ map { "$_->[0]: $_->[1]" } @{ $start->{headers} } ],
        [
            'X-Frame-Options: DENY',
            'x-xss-protection: 1; mode=block',
            'referrer-policy: strict-origin-when-cross-origin',
            'permissions-policy: camera=()'
        ],
        "the application's own stays, undef leaves one out"
    );
    is(scalar @own, 1, "... and the application's list is as it was");

    for my $type (qw(sse.start sse.http.response.start websocket.http.response.start)) {
        my $sends = PAGI::Middleware::SecurityHeaders->new->wrap(sub { $_[2]->({ type => $type }) });
        is(headers_of(call($sends))->{'x-frame-options'}, 'SAMEORIGIN', "$type has them");
    }
    my $wrong = PAGI::Middleware::SecurityHeaders->new->wrap(sub { $_[2]->($_) for 'x', {}; Future->done });
    is_deeply([ call($wrong) ], [ 'x', {} ], 'values that are no events go to the server');
    ok(!eval { PAGI::Middleware::SecurityHeaders->new(x_frame_option => 1) }, 'an unknown setting');
    like($@, qr/does not know x_frame_option; it knows x_frame_options .* at t\b/, '... is named');
};

subtest 'order, conditions, mounts' => sub {
    my $app = builder {
        enable '^My::Mark', name => 'a';
        enable_if { $_[0]->{path} =~ m{^/api/} } '^My::Mark', name => 'b';
        enable(My::Mark->new(name => 'c'));
        mount '/api'    => answering('api');
        mount '/api/v2' => builder { enable '^My::Mark', name => 'd'; answering('new') };
        answering('site');
    };
    my $marks = sub (@sent) {
        join '', map { $_->[1] } @{ $sent[0]{headers} };
    };
    my @cases = (
        # path, answer, marks on the way in, path and root_path there
        [ '/',          'site', 'ac',   '/',      '' ],
        [ '/api',       'api',  'ac',   '/',      '/api' ],
        [ '/api/',      'api',  'abc',  '/',      '/api' ],
        [ '/api/x/y',   'api',  'abc',  '/x/y',   '/api' ],
        [ '/apis',      'site', 'ac',   '/apis',  '' ],
        [ '/api/v2/z',  'new',  'abcd', '/z',     '/api/v2' ],
        [ '/api/v22/z', 'api',  'abc',  '/v22/z', '/api' ],
    );
    for my $case (@cases) {
        my ($path, $answer, $in, $inner, $root) = @$case;
        my @sent = call($app, path => $path);
        is($sent[1]{body},      $answer,      $path);
        is($seen->{'my.marks'}, $in,          '... in the order of the block');
        is($marks->(@sent),     reverse($in), '... and back');
        is($seen->{path},       $inner,       '... path');
        is($seen->{root_path},  $root,        '... root_path');
    }
    call($app, path => '/api/v2/x', root_path => '/outer');
    is($seen->{root_path}, '/outer/api/v2', 'what was taken off before is kept');
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    my $lifespan = { type => 'lifespan', state => {} };
    $app->($lifespan, sub { }, sub { })->get;
    is($seen->{'my.marks'}, 'ac',               'lifespan goes to the last application, past conditions');
    is($seen->{state},      $lifespan->{state}, '... with its state');
    is("@warnings",         '',                 '... without a warning');

    my $only = builder { mount '/a' => answering('a'); mount '/' => answering('root') };
    is((call($only, path => $_->[0]))[1]{body}, $_->[1], "$_->[0] of mounts only")
        for [ '/a/b', 'a' ], [ '/b', 'root' ];

    my $builder = PAGI::Middleware::Builder->new;
    $builder->enable('^My::Mark', name => 'x');
    $builder->enable_if(sub { $_[0]{path} eq '/y' }, '^My::Mark', name => 'y');
    $builder->mount('/z', answering('z'));
    my $made = $builder->to_app(answering('main'));
    is($marks->(call($made, path => '/y')),  'yx', 'the same by methods');
    is((call($made, path => '/z'))[1]{body}, 'z',  '... and a mount');
};

# Future::AsyncAwait frees the @_ of an async sub that waits: middleware must not have handed it its own.
subtest 'applications that wait' => sub {
    my @pending;
    my $waits = async sub {
        my ($scope, $receive, $send) = @_;
        for my $turn (1 .. 3) { await $receive->() }
        await $send->({ type => "$scope->{type} $scope->{path}" });
    };
    my $app = builder {
        enable 'SecurityHeaders';
        enable_if { $_[0]{path} eq '/asked' } '^My::Mark', name => 'x';
        mount '/mounted' => $waits;
        $waits;
    };
    my @cases = ([ lifespan => '/' ], [ http => '/' ], [ http => '/asked' ], [ http => '/mounted/x' ]);
    my @sent;
    for my $round (1 .. 50) {
        my @ended;
        for my $case (@cases) {
            my %scope = (type => $case->[0], path => $case->[1], scheme => 'http', headers => []);
            push @ended,
                $app->(
                \%scope,
                sub { push @pending, my $future = Future->new; return $future },
                sub { push @sent,    $_[0]{type};              return Future->done }
                );
        }
        while (my $future = shift @pending) { $future->done({}) }
        $_->get for @ended;
    }
    my %times;
    $times{$_}++ for @sent;
    is_deeply(
        \%times,
        { 'lifespan /' => 50, 'http /' => 50, 'http /asked' => 50, 'http /x' => 50 },
        'have the arguments that they were called with'
    );
};

subtest 'the base class' => sub {
    my @events =
        ({ type => 'http.request', body => 'ab', more => 1 }, { type => 'http.request', body => 'c' });
    my ($body, $last) = PAGI::Middleware->new->buffer_request_body(async sub { shift @events })->get;
    is($body,         'abc', 'a whole body');
    is($last->{body}, 'c',   '... and its last event');
    @events = ({ type => 'http.request', body => 'ab', more => 1 }, { type => 'http.disconnect' });
    ($body, $last) = PAGI::Middleware->new->buffer_request_body(async sub { shift @events })->get;
    is("$body $last->{type}", 'ab http.disconnect', 'a body that was cut short');
    ok(
        !eval {
            PAGI::Middleware->new->wrap(sub { });
        },
        'it wraps nothing itself'
    );
    like($@, qr/PAGI::Middleware has no method wrap/, '... and says so');
};

subtest 'wrong uses' => sub {
    my $app   = answering('x');
    my @cases = (
        [ sub { enable('SecurityHeaders') }, qr/enable is for use inside builder \{ \}/ ],
        [ sub { mount('/' => $app) },        qr/mount is for use inside builder/ ],
        [
            sub {
                builder { enable 'NoSuch'; $app }
            },
            qr/enable 'NoSuch': PAGI::Middleware::NoSuch is not installed at/
        ],
        [
            sub {
                builder { enable 'My::Mark'; $app }
            },
            qr/PAGI::Middleware::My::Mark is not installed; a class with a name of its own is '\^My::Mark'/
        ],
        [
            sub {
                builder { enable 'a b'; $app }
            },
            qr/enable needs the name of a middleware, .* not 'a b'/
        ],
        [
            sub {
                builder { enable '^File::Spec'; $app }
            },
            qr/File::Spec has no methods new and wrap/
        ],
        [
            sub {
                builder { enable '^My::Mark', 'x'; $app }
            },
            qr/settings come in pairs/
        ],
        [
            sub {
                builder { enable(bless {}, 'My::Thing'); $app }
            },
            qr/My::Thing has no method wrap/
        ],
        [
            sub {
                builder { enable(My::Mark->new, a => 1); $app }
            },
            qr/settings belong to where/
        ],
        [
            sub {
                builder { mount 'x' => $app; $app }
            },
            qr/mount needs a path that begins with '\/', not 'x'/
        ],
        [
            sub {
                builder { mount '/x' => 'App'; $app }
            },
            qr/mount '\/x' needs an application, .* not 'App'/
        ],
        [
            sub {
                builder { mount '/x' => $app; mount '/x/' => $app; $app }
            },
            qr/two applications at '\/x'/
        ],
        [
            sub {
                builder { enable 'SecurityHeaders' }
            },
            qr/builder needs an application/
        ],
        [
            sub {
                builder { 1 }
            },
            qr/builder needs an application, .* not '1'/
        ],
        [ sub { PAGI::Middleware::Builder->new->enable_if('x', 'SecurityHeaders') }, qr/needs a condition/ ],
    );
    for my $case (@cases) {
        my ($code, $message) = @$case;
        ok(!eval { $code->(); 1 }, 'it dies');
        like($@, $message, '... and says what is wrong');
    }
};

subtest 'served' => sub {
    my $home = File::Temp->newdir;
    open my $out, '>', "$home/app.pl" or die $!;
    print {$out} <<~'APP';
        use strict;
        use warnings;
        use experimental 'signatures';
        use Future::AsyncAwait;
        use PAGI::Middleware::Builder;
        my $hello = do './examples/01-hello-http/app.pl' or die $@ || $!;
        builder { enable 'SecurityHeaders'; mount '/hello' => $hello; $hello };
        APP
    close $out or die $!;
    my $server = TestServer->command('-E', 'development', "$home/app.pl");
    my $answer = get($server->port, '/hello/x');
    is($answer->{body},                      "Hello from PAGI!\n", 'the application behind a mount answers');
    is($answer->{header}{'x-frame-options'}, 'SAMEORIGIN',         '... with the fields');
    is($server->stop,                        0,                    'the server ends well');
    unlike($server->log, qr/lower case|must be|died/, '... and has nothing to complain of');
};

# The manual's example, as a class of its own.
subtest 'the manual of the base class' => sub {
    my ($code) = content('lib/PAGI/Middleware.pm') =~ /^=head1 SYNOPSIS\n\n(.*?)^=/ms;
    $code = for_this_perl($code);
    ok(eval "$code; 1", 'it compiles') or diag $@;
    my $app = builder { enable(My::Runtime->new); answering('x') };
    like(headers_of(call($app))->{'x-runtime'}, qr/\A[0-9.e-]+\z/, '... and adds its field');
};

done_testing;
