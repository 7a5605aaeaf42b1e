package PAGI::Server::Topics;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::Channels;
use Peregrine::Node;
use Scalar::Util qw(blessed);

# An object is [ node ]: xs/pagi/topics.c makes one for each application.
use constant { NODE => 0 };

# Characters of a position, which clients send as Last-Event-ID: it may be any text. A text that is no
# position causes a reset, and no failure.
use constant SINCE_MAX => 48;

# Makes an object for a scope that Perl code has made.
sub new {
    my ($class, $node) = @_;
    return bless [$node], $class;
}

sub publish {
    my ($self, $topic, $bytes) = @_;
    my $failed = PAGI::Server::Channels::problem_with_name(topic => $topic);
    return $failed if $failed;
    return Future->fail('InvalidMessage', 'message', 'an entry is a string of at least one byte')
        if !defined $bytes || ref $bytes || !length $bytes;
    my $copy = $bytes;
    return Future->fail('InvalidMessage', 'message', 'an entry is of bytes: encode its characters')
        if !utf8::downgrade($copy, 1);
    return $self->[NODE]->ask(append => (name => $topic, bytes => $copy));
}

sub position {
    my ($self, $topic) = @_;
    my $failed = PAGI::Server::Channels::problem_with_name(topic => $topic);
    return $failed // $self->[NODE]->ask(look => (name => $topic));
}

sub presence {
    my ($self, $topic) = @_;
    my $failed = PAGI::Server::Channels::problem_with_name(topic => $topic);
    return $failed // $self->[NODE]->present($topic, 'history');
}

# ---- Functions for xs/pagi/topics.c --------------------------------------------------------------

# Forms of entries by type of scope: messages of a WebSocket are `text` or `binary`; an event stream has only
# `sse`.
my %AS      = (websocket => { text => 'text', binary => 'binary' }, sse => { sse => 'events' });
my %DEFAULT = (websocket => 'text', sse => 'sse');

# A checked wish as arguments of Peregrine::Node, or a failed Future.
sub _read {
    my ($wish) = @_;
    my (undef, $kind, $topic, $as, $since, $behind) = @$wish;
    my $failed = PAGI::Server::Channels::problem_with_name(topic => $topic);
    return $failed if $failed;
    $as //= $DEFAULT{$kind};
    my $known = $AS{$kind}{$as};
    return Future->fail(
        "topic.subscribe: as must be " . join(' or ', reverse sort keys %{ $AS{$kind} }) . "\n")
        if !$known;
    $behind //= 'skip';
    return Future->fail("topic.subscribe: behind must be skip or cut\n") if $behind !~ /\A(?:skip|cut)\z/;
    $since //= '';
    $since = 'none' if length $since > SINCE_MAX || $since =~ /[^\x20-\x7e]/;
    return { topic => $topic, as => $known, cuts => $behind eq 'cut', since => $since };
}

sub _subscribe {
    my ($self, $wish) = @_;
    my $read = _read($wish);
    return $read if blessed($read);
    return $self->[NODE]->follow($wish->[0], delete $read->{topic}, %$read);
}

# The Future of a subscription that the engine delivers, and arguments for the engine.
sub _wish {
    my ($self, $wish) = @_;
    my $read = _read($wish);
    return $read if blessed($read);
    my $as = Peregrine::Node::number_of_as($read->{as});
    return [ $self->[NODE]->new_future, $read->{topic}, $as, $read->{cuts}, $read->{since} ];
}

# Settles a Future by the engine's answer.
sub _answered {
    my ($self, $told) = @_;
    Peregrine::Node::answered(@$told);
    return;
}

# The name of a topic that will not be read any more, or a failed Future.
sub _topic {
    my ($self, $wish) = @_;
    return PAGI::Server::Channels::problem_with_name(topic => $wish->[2]) // $wish->[2];
}

sub _unsubscribe {
    my ($self, $wish) = @_;
    my ($mailbox, undef, $topic) = @$wish;
    my $failed = PAGI::Server::Channels::problem_with_name(topic => $topic);
    return $failed if $failed;
    $self->[NODE]->unfollow($mailbox, $topic);
    return Future->done;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Topics - sequences of messages with history, which the server sends to whoever reads them

=head1 SYNOPSIS

    # pagi-server --channels --workers 4 news.pl
    use Future::AsyncAwait;

    async sub {
        my ($scope, $receive, $send) = @_;
        if ($scope->{type} eq 'sse') {
            my ($since) = map { $_->[1] } grep { $_->[0] eq 'last-event-id' } @{ $scope->{headers} };
            await $send->({ type => 'sse.start' });
            await $send->({ type => 'topic.subscribe', topic => 'news', since => $since });
            while ((await $receive->())->{type} ne 'sse.disconnect') { }
        }
        elsif ($scope->{type} eq 'http') {
            my $position = await $scope->{'pagi.topics'}->publish(news => 'Something has happened');
            ...
        }
    };

=head1 DESCRIPTION

With the option C<channels> each scope, C<lifespan> included, has the key C<pagi.topics>, an object of this
class. A topic is an ordered sequence of entries, strings of bytes, of which the last ones are kept: 1000, 4
MiB and five minutes at most (C<topics_history_entries>, C<topics_history_size>, C<topics_history_age>), and
64 MiB of all topics together. Anybody may publish to it, in any interpreter.

A WebSocket or an event stream reads a topic when its application sends C<topic.subscribe>
(L<PAGI::Server::Protocol>). From then on the server sends it the entries by itself: none of the application's
code runs for them, and the application does as before what it likes with the connection. A WebSocket gets
each entry as a message of text, in which what is no UTF-8 is replaced, or of bytes (C<< as => 'binary' >>);
an event stream gets it as an event's data, with its position as the event's C<id>. C<topic.unsubscribe> ends
it, as does the end of the connection. A connection may read 32 topics; an event stream should read one,
because its client keeps only one position. The application decides who may read which topic: clients cannot
subscribe by themselves.

=head2 Positions

Each entry has a position, a short text. C<publish> tells it, C<position> tells that of the newest entry, and
an event stream's client keeps it and sends it again as C<Last-Event-ID> when it reconnects. With C<< since =>
$position >> a reader gets all entries behind that position, each once, in their order; without, it gets what
is published next. So a page may be made of a database, with the position that was asked for before, and its
stream begins there.

A position may be none any more: its entry was kept too short a time, another history has begun because the
hub was started again, or the client has made it up. Then the reader gets a B<reset> in place of a silent gap,
and goes on with what is published next. An event stream gets it as

    id: 7f15e87a9941.3.2e73586fdbd8
    event: reset
    data: news

for which its page listens, to load itself again. The application of a WebSocket is told by C<$receive>, with
C<topic.reset>, and decides what its client hears.

=head2 From elsewhere

An application of PSGI, a job of a queue or any other Perl program publishes with L<Peregrine::Publisher>, a
shell with C<peregrine publish> (L<PAGI::Server::PublishCommand>).

=head2 Applications of PSGI

An application that blocks may read topics, too: with the option C<grip> it leaves a response to the engine,
and its worker is free (L<Plack::Handler::Peregrine::Grip>).

=head2 What is promised

All readers of a topic get its entries in the same order. A client that reads too slowly has no queue of its
own: it gets what follows from the history when it has taken what was sent before. When the history does not
go back as far as it is behind, it gets a reset and goes on with what is new; or with C<< behind => 'cut' >>
its connection ends, a WebSocket's with 1013.

    What dies         What becomes of the topics
    a client          comes back with its position, and misses nothing that is still kept
    an interpreter    its connections end; likewise. With --engine process those that only read go on
    all of them, HUP  likewise
    a program, USR2   its connections end; likewise. The hub of the new one goes on with the topics;
                      for some hundredths of a second publish may fail
    the hub           publish fails, with Unknown if the entry may be there, with Unavailable otherwise, for
                      some hundredths of a second; its topics are lost: reset. With Redis they are not

With Redis (L<PAGI::Server::Channels/Redis>) topics and their positions are those of all servers that use
it. What dies then, besides:

    Redis, which is started again       nothing of what was acknowledged, if it writes each command to the
                                        disk first (appendfsync always); publish fails meanwhile
    a failover that has lost entries,   a reset
    or FLUSHALL
    the link to Redis, ten seconds      nothing; entries come late on this machine, and publish fails here.
                                        Whoever begins to read here meanwhile waits, for five seconds at most
    the memory of Redis is full         publish fails with TooMany; nothing is lost

No request waits for any of it but in a call of these methods, which fail after five seconds at the latest.
Each line is tested: by F<t/66-topics.t> and F<t/66-redis.t>, and over several machines by F<script/channels>
(L<PAGI::Server::Compliance/"Topics over several machines">).

With C<--engine process> and C<--engine thread> the engine delivers topics by itself: an entry that waits for
many clients is once in memory, and WebSockets that agreed on compression share it compressed. With
C<--engine process> a connection whose application only lets it read, and has sent nothing by itself since the
Future of C<topic.subscribe> was done and the application has begun to wait, goes on when its interpreter is
killed, without gap and without repeat. A WebSocket among them ends with 1012 when its client says something,
because no application hears it, or when it would get a reset; so clients had better connect again.

The engine, or with C<inline> each interpreter, keeps a copy of the histories that its connections read.
Topics have nothing to do with those of L<PAGI::Server::Channels>, even if they have the same names.

=head1 METHODS

Each returns a L<Future>. Names are made of letters, digits, and C<.>, C<->, C<_>, C<:>, of at most 100
characters.

=head2 publish

    my $position = await $topics->publish($topic, $bytes);

Adds an entry of 1 byte to 1 MiB. Done when it has its place, whether anybody reads the topic or not.

=head2 position

    my $position = await $topics->position($topic);

The position of the newest entry; of a topic without entries that of its beginning.

=head2 presence

    my $present = await $topics->presence($topic);    # { count => 230, channels => [ ... ], complete => 1 }

Who reads the topic: L<PAGI::Server::Channels/presence>.

=head2 new

    my $topics = PAGI::Server::Topics->new($node);

For the server.

=head1 FAILURES

The message of a failure is a name:

    InvalidTopicName
    InvalidMessage      an entry is a string of bytes, of at least one
    MessageTooLarge     the entry has more than 1 MiB
    TooMany             topics of one connection, or of the hub (100,000); calls that wait for an answer
    Unavailable         there is no hub now: the call has had no effect
    Unknown             the hub went, or did not answer: the entry may be there

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
