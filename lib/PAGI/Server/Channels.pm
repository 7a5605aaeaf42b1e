package PAGI::Server::Channels;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use Peregrine;

# An object is [ node, mailbox, name of the channel ]: xs/pagi/channels.c makes one for each scope.
use constant { NODE => 0, MAILBOX => 1, CHANNEL => 2 };

my $NAME = qr/\A[A-Za-z0-9._:-]{1,100}\z/;

# Makes an object for a scope that Perl code has made.
sub new {
    my ($class, $node, $mailbox, $channel) = @_;
    return bless [ $node, $mailbox, $channel ], $class;
}

sub node { return $_[0][NODE] }

# A failed Future if the name is none for a `channel` or a `topic`; otherwise nothing.
sub problem_with_name {
    my ($what, $name) = @_;
    return if defined $name && !ref $name && $name =~ $NAME;
    return Future->fail($what eq 'channel' ? 'InvalidChannelName' : 'InvalidTopicName',
        $what, 'a name has 1 to 100 letters, digits, and . - _ :');
}

# The bytes of a message, or a failed Future.
sub _encoded {
    my ($message) = @_;
    my ($bytes, $failure, $detail) = Peregrine::encode_message($message);
    return $bytes if defined $bytes;
    return (undef, Future->fail($failure, $failure eq 'MessageTooLarge' ? 'size' : 'message', $detail));
}

sub send {
    my ($self, $channel, $message) = @_;
    my $failed = problem_with_name(channel => $channel);
    return $failed if $failed;
    (my $bytes, $failed) = _encoded($message);
    return $failed // $self->[NODE]->ask(send => (name => $channel, bytes => $bytes));
}

sub publish {
    my ($self, $topic, $message, %options) = @_;
    my $failed = problem_with_name(topic => $topic);
    return $failed if $failed;
    my $exclude = delete $options{exclude};
    return Future->fail('InvalidOption', 'option', join ', ', sort keys %options) if %options;
    my @excluded = grep { defined } ref $exclude eq 'ARRAY' ? @$exclude : $exclude;
    $failed //= problem_with_name(channel => $_) for @excluded;
    return $failed if $failed;
    (my $bytes, $failed) = _encoded($message);
    return $failed
        // $self->[NODE]->ask(publish => (name => $topic, bytes => $bytes, extra => join ' ', @excluded));
}

sub subscribe {
    my ($self, $topic) = @_;
    my $failed = problem_with_name(topic => $topic);
    return $failed // $self->[NODE]->ask(subscribe => (name => $topic, mailbox => $self->[MAILBOX]));
}

sub unsubscribe {
    my ($self, $topic) = @_;
    my $failed = problem_with_name(topic => $topic);
    return $failed if $failed;
    $self->[NODE]->unsubscribe($self->[MAILBOX], $topic);
    return Future->done(1);
}

sub presence {
    my ($self, $topic) = @_;
    my $failed = problem_with_name(topic => $topic);
    return $failed // $self->[NODE]->present($topic);
}

sub flush {
    my ($self) = @_;
    return $self->[NODE]->ask('flush');
}

# ---- Methods named as in Django Channels ---------------------------------------------------------

sub group_send { my ($self, @args) = @_; return $self->publish(@args) }

sub group_add {
    my ($self, $topic, $channel) = @_;
    return $self->subscribe($topic) if !defined $channel || $channel eq $self->[CHANNEL];
    return $self->_group(add => $topic, $channel);
}

sub group_discard {
    my ($self, $topic, $channel) = @_;
    return $self->unsubscribe($topic) if !defined $channel || $channel eq $self->[CHANNEL];
    return $self->_group(discard => $topic, $channel);
}

sub _group {
    my ($self, $kind, $topic, $channel) = @_;
    my $failed = problem_with_name(topic => $topic) // problem_with_name(channel => $channel);
    return $failed // $self->[NODE]->ask($kind => (name => $channel, extra => $topic));
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Channels - messages between the connections of all interpreters

=head1 SYNOPSIS

    # pagi-server --channels --workers 4 chat.pl
    use Future::AsyncAwait;

    async sub {
        my ($scope, $receive, $send) = @_;
        die "WebSockets only\n" if $scope->{type} ne 'websocket';
        my ($channels, $me) = @{$scope}{qw(pagi.channels pagi.channel)};

        await $send->({ type => 'websocket.accept' });
        await $channels->subscribe('chat.room');
        while (1) {
            my $event = await $receive->();
            last if $event->{type} eq 'websocket.disconnect';
            if ($event->{type} eq 'websocket.receive') {
                my $message = { type => 'chat.message', text => $event->{text} };
                await $channels->publish('chat.room', $message, exclude => $me);
            }
            elsif ($event->{type} eq 'chat.message') {
                await $send->({ type => 'websocket.send', text => $event->{text} });
            }
        }
    };

=head1 DESCRIPTION

The channels of PAGI's design document (C<docs/design/channel-layer.mkdn> in PAGI's repository) by the server
itself. With the option C<channels> each scope, C<lifespan> included, has two more keys:

=over 4

=item C<pagi.channels>

An object of this class.

=item C<pagi.channel>

The name of this connection's channel, which no other connection of any interpreter has, ever. The channel
lasts as long as the request: it ends when the client has gone, C<$receive> has given its last event, or the
application returns, whichever is first. A C<lifespan>'s ends with its last answer.

=back

Messages for the channel come by C<$receive>, between the events of the scope; applications tell them by their
type. Where there are both, they take turns.

A server with workers starts a process for it, the hub, which is started again if it dies; in a server
without, it is a thread. Programs that take over from each other (C<USR2>) share one hub. Messages reach
connections of all interpreters on this machine, and with L</Redis> those of other machines. Linux only.

=head2 What is promised

A message comes once at most. Messages of one sender come in their order, and those of a topic come in the
same order to all. A message that waits for C<$receive> for C<channels_expiry> (60 s) is gone. There is no
history: who subscribes gets what is published later.

    What dies         What is lost
    a client          the messages of its channel
    an interpreter    the messages of its channels, and what it was sending
    all of them, HUP  likewise: channels end with their connections
    a program, USR2   nothing while both run; what is under way when the old one ends
    the hub           what is under way: a call fails, with Unknown if the hub may have heard of it, with
                      Unavailable otherwise, and so do further ones, for some hundredths of a second;
                      subscriptions stay

    Redis             what is under way: calls fail with Unavailable or Unknown while it is away;
                      subscriptions stay, whether it is started again or emptied
    the link to it    likewise, on this machine

No request waits for any of it but in a call of these methods, which fail after five seconds at the latest.
Each line is tested by F<t/66-channels-ends.t> and F<t/66-redis.t>.

=head2 Mounts that are confined to their own topics

    $ peregrine --engine process --workers 4 --channels --mount /=site.psgi \
        --mount /shop=shop.pl,workers=4,user=shop,topics=shop.

The interpreters of C</shop> name topics that begin with C<shop.>, of both kinds, and no others: to publish,
to subscribe, to read, to ask for a position or for presence, and in responses that are held (C<grip=> has to
begin likewise). They send to channels of interpreters that are confined alike, and to no others, and C<flush>
nothing. Other calls fail with C<Forbidden>, those of L<Peregrine::Publisher> die with it, C<topic.subscribe>
fails with it, and a response that would be held is answered with 500, as the log says. Interpreters without
the setting, and C<peregrine publish>, name all topics and reach all channels.

The right belongs to the sockets that a process has: these interpreters have a way of their own to the hub,
and their own one to the engine, and no other from before they load anything of the application. They prove
nothing, and choose nothing. So it holds through C<peregrine reload>, HUP, USR2 and another hub.

    What an application of such a mount may try        user of its own        the server's user
    names, by any call or any bytes                    refused                refused
    a channel of another mount, whose name it knows    refused                refused
    answers in the name of another interpreter         without effect         without effect
    many subscriptions, topics, connections or calls   its share, TooMany     its share, TooMany
    channels_socket, which is the server's user's      refused by mode 0600   publishes everything
    memory and sockets of other processes (ptrace)     refused by the kernel  as the kernel allows it
    a function of --worker-pool that publishes         as the function does   as the function does

So C<topics=> alone guards against mistakes, and with C<user=> against an application that somebody else has
written. Mounts that share the interpreters of C<--workers> cannot be confined: they are one process. With
C<--engine thread>, C<inline> and C<plackup -s EVHTP> no mount has interpreters of its own.

With L</Redis> each machine checks its own interpreters. Whoever speaks to Redis is not confined.

=head2 Room

A hub has room for 1,000,000 subscriptions to topics of channels, of which an interpreter may have 250,000, as
may all interpreters of a confined mount together. Such a mount has 25,000 topics with history at most. When
there are 64 MiB of entries, the oldest go of the confined mount that has most, or of all other topics if
these are more: no mount costs those that have less their history. The engine, or an interpreter that reads
without it, has copies of 256 MiB at most of the topics that its clients read; those that cost most go, and
their readers that are behind or come back get a reset. When 256 MiB wait in the hub because interpreters
read too slowly, one of them is cut, likewise of those for which most waits.

Of an interpreter's calls 10,000 may be under way, with Redis 4,096 publications of 16 MiB, and 100 questions
who is subscribed. Of the calls of all interpreters of a confined mount 25,000 may wait for answers of
interpreters, with Redis 4,096 publications of 16 MiB may be under way, and 125 questions. More fail with
C<TooMany>.

Where the mounts of a server are so many that they could fill the hub, each confined one has an equal part of
its room, less than these numbers: with five, a sixth of 1,000,000 subscriptions, of 100,000 topics with
history, of 100,000 calls that wait for answers, and so on. All other mounts together have what is left of
these parts, which is no less: what one mount takes is never missing to another.

With L</Redis> the topics with history of a confined mount have 256 MiB there, on all machines together, with
what each topic (some 5 KiB, 1 KiB without entries) and each entry (128 bytes) costs beside its bytes. Beyond,
the topics go that were not used for longest, and their readers get a reset: so no such mount fills Redis.
Other topics take what Redis has (C<maxmemory>), and are refused with C<TooMany> when that is full.

=head2 Applications of PSGI

They have no channels, as each is called once. They publish to both kinds of topics by
L<Peregrine::Publisher>, and leave event streams and long polls to the engine with the option C<grip>, or a
mount's setting C<grip=PREFIX>: L<Plack::Handler::Peregrine::Grip>.

=head2 Redis

    pagi-server --channels redis://user:password@redis.example:6379/0 --workers 4 chat.pl
    pagi-server --channels 'unix:/run/redis/redis.sock?db=1&prefix=chat:' chat.pl

Servers with the same Redis (6 or newer, or a Valkey), database and prefix are one: each publication goes
there and comes back to all of them, in one order. Only the hub speaks to Redis, over two connections for each
server. C<prefix> is before all keys and channels (C<peregrine:>), C<db> is the number of the database where
the URL has no place for it. Special characters of user and password are written as percent signs with two
hexadecimal digits. A password on the command line can be read by other users of the machine: the environment
variable C<PAGI_CHANNELS_BACKEND> or a configuration file is the better place.

    pagi-server --channels 'rediss://:password@redis.example?ca=/etc/redis/ca.pem' --workers 4 chat.pl

With C<rediss://> the connections are within TLS 1.2 or 1.3. The server's certificate is verified, for the
name or address in the URL, by the authorities in the file C<ca>, or else those of the system (or of the files
that the environment variables C<SSL_CERT_FILE> and C<SSL_CERT_DIR> name). C<cert> and C<key> are files with a
certificate of ours and its key, for a Redis that wants one, as it does by default (C<tls-auth-clients>); both
may be in the file C<cert>. All of them are PEM, are read by the user that the server runs as, and are read
again for each connection, so that certificates may be renewed. Connection and handshake have five seconds.

Whoever may publish under the prefix may send anything to every application, so Redis is to have a user for
these servers. With the rights of this one they work:

    ACL SETUSER peregrine on >password ~peregrine:* &peregrine:* -@all +hello +ping +select +eval +evalsha
        +subscribe +unsubscribe +publish +hsetnx +hmget +hset +pexpire +xrange +xadd +xlen +xdel +del +zadd
        +zscore +zrangebyscore +zremrangebyscore

For topics that outlive a restart of Redis: C<appendonly yes> and C<appendfsync always>. A cluster of several
masters is not supported.

A message to a topic's name by L</send>, for one channel of all that have subscribed, goes to a channel of the
same server.

Redis cuts the connection of a machine that reads more slowly than others publish (by default where 32 MiB
wait, or 8 MiB for a minute: C<client-output-buffer-limit pubsub>). The machine connects again, and reads from
the histories of its topics what it has missed, topics of each confined mount and of all others by turns. So
readers miss nothing; those of a topic whose history was shorter get a reset. Messages of channels meanwhile
are lost to this machine. The limit has to be some times as long as the longest message.

While Redis is away, C<subscribe> waits for it as other calls do; the log says C<Redis is away>
and why, and says when it is there again. What fails then depends on the call, and no request fails that makes
none.

=head2 Messages

A message is a hash reference with a C<type>, a string. The server's own events begin with C<http.>,
C<websocket.>, C<sse.> and C<lifespan.>, and one is C<topic.reset>; such types are refused, because a message
of one would be a forged event. Values are strings, of bytes or of characters, numbers, C<undef>, true and
false (of Perl, or of a module for JSON), lists and hashes, at most 64 within each other. With all its keys a
message has at most 1 MiB.

=head1 COMING FROM

The words of others, and those of this server. C<$channels> is C<< $scope->{'pagi.channels'} >>, C<$topics> is
C<< $scope->{'pagi.topics'} >> (L<PAGI::Server::Topics>).

    Django Channels

    channel_layer                     $channels
    self.channel_name                 $scope->{'pagi.channel'}
    group_add, group_discard          the same, or subscribe and unsubscribe
    group_send                        the same, or publish, which may exclude channels
    channel_layer.send                $channels->send
    a method for each type            the type of an event that $receive gives
    capacity, expiry                  channels_capacity, channels_expiry
    ChannelFull                       the same, as a failed Future
    channels_redis                    --channels redis://..., rediss://... or unix:...
    in-memory layer, one process      --channels, all processes of the machine
    (messages that were missed)       $topics

    Socket.IO

    socket.join, socket.leave         subscribe, unsubscribe; or topic.subscribe
    io.to(room).emit                  $channels->publish, $topics->publish
    socket.to(room).emit              publish with exclude
    socket.id                         $scope->{'pagi.channel'}
    fetchSockets                      presence: a count, and 100 names
    connection state recovery         topics, with since
    adapters for Redis                --channels redis://...
    sticky sessions                   none are needed
    acknowledgements of clients       an event of the application's own
    long polling, its protocol        not there: event streams are plain HTTP

    ActionCable

    stream_from, stream_for           topic.subscribe
    stop_stream_from                  topic.unsubscribe
    ActionCable.server.broadcast      $topics->publish
    broadcast from a job              Peregrine::Publisher, peregrine publish
    a channel's subscribed, reject    the application decides before topic.subscribe
    identified_by                     the application's own variables
    adapter: redis                    --channels redis://...
    AnyCable's streams history        topics: since, reset

    Nchan

    nchan_subscriber                  topic.subscribe; the application decides who may
    nchan_publisher                   $topics->publish, peregrine publish: never a client
    nchan_authorize_request           the application, before topic.subscribe
    nchan_message_buffer_length       topics_history_entries, topics_history_size
    nchan_message_timeout             topics_history_age
    Last-Event-ID, Etag               positions
    nchan_redis_url                   --channels redis://...
    nchan_stub_status                 the option status: page, status.json, metrics
    subscribers of a channel          presence
    several channels in one request   a topic for each topic.subscribe, 32 at most
    multipart, raw chunks             not there

=head1 METHODS

Each returns a L<Future>. Names are made of letters, digits, and C<.>, C<->, C<_>, C<:>, of at most 100
characters.

=head2 send

    my $is_there = await $channels->send($channel, { type => 'task.result', result => 42 });

Sends a message to one channel. Done with 1 when it is in the channel's mailbox, with 0 if there is no such
channel any more. If the name is that of a topic, one of the channels that have subscribed to it gets the
message, by turns: a pool of workers, of which each has subscribed.

=head2 publish, group_send

    await $channels->publish($topic, { type => 'chat.message', text => 'Hello' });
    await $channels->publish($topic, $message, exclude => $scope->{'pagi.channel'});
    await $channels->publish($topic, $message, exclude => [ $one, $other ]);

Sends a message to all channels that have subscribed to a topic, but not to those that are excluded. Done when
the message is on its way to all interpreters. Channels whose mailboxes are full do not get it.

=head2 subscribe, unsubscribe

    await $channels->subscribe($topic);
    await $channels->unsubscribe($topic);

To subscribe twice, or to end what is none, does nothing. A subscription ends with its channel at the latest;
while that is open it does not expire. A channel has at most 1000.

=head2 group_add, group_discard

    await $channels->group_add($topic, $channel);
    await $channels->group_discard($topic, $channel);

The same for any channel, of whichever interpreter: to know its name is the right to do so, except from and
into L<mounts that are confined|/Mounts that are confined to their own topics>.

=head2 presence

    my $present = await $channels->presence($topic);
    say "$present->{count} are here";    # { count => 230, channels => [ ... ], complete => 1 }

Who has subscribed to a topic, in all interpreters, and with L</Redis> of all servers: how many channels,
and the names of some of them, at most 100. Interpreters are asked at that moment, so a dead one does not
count. After two seconds there is an answer in any case; without C<complete> some interpreter or server
has not told in time.

=head2 flush

    await $channels->flush;

For tests: drops all messages that wait, and ends all subscriptions, of all interpreters.

=head2 problem_with_name

    my $failed = PAGI::Server::Channels::problem_with_name(topic => $name);

A failed Future if that is no name of a C<channel> or a C<topic>. L<PAGI::Server::Topics> calls it.

=head2 node

    my $node = $channels->node;

The L<Peregrine::Node> of the interpreter, for extensions that open channels of their own.

=head2 new

    my $channels = PAGI::Server::Channels->new($node, $mailbox, $name);

For the server.

=head1 FAILURES

The message of a failure is a name:

    ChannelFull         send: channels_capacity (100) messages wait in the channel, or 64 MiB in its
                        interpreter
    MessageTooLarge     the message has more than channels_message_size (1 MiB), or all names of
                        `exclude` together 64 KiB
    InvalidMessage      the message is no hash, has no type or a reserved one, or a value that cannot be sent
    InvalidChannelName
    InvalidTopicName
    TooMany             subscriptions of one channel, or calls that wait for an answer (10,000), see Room
    Forbidden           a topic or channel that the interpreter's mount may not name
    Unavailable         there is no hub now: the call has had no effect
    Unknown             the hub went, or did not answer: the call may have had an effect
    InvalidOption       publish knows only exclude

    my $sent = await $channels->send($to, $message)->catch(sub {
        my ($name, $category, @details) = @_;
        return 0 if $name eq 'ChannelFull';
        die "$name\n";
    });

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
