# The distribution's requirements: the only list, read by Makefile.PL and by cpanm --installdeps.
requires 'perl'               => '5.032';
requires 'Future'             => '0.49';
requires 'Future::AsyncAwait' => '0.63';
requires 'IO::Async'          => '0.80';

# Makefile.PL requires it on Linux.
recommends 'IO::Async::Loop::Epoll' => '0.22';
recommends 'Future::IO'             => '0.13';
# IO::Async uses it when it is there; without it each timer of an application costs time in
# proportion to their number.
recommends 'Heap::Fibonacci' => '0.80';
# pagi-server --reload sees changes at once with it, otherwise within a second.
recommends 'Linux::Inotify2' => '2.3';
recommends 'Plack'           => '1.0050';
# --acme orders certificates with these two.
recommends 'CryptX'          => '0.068';
recommends 'IO::Socket::SSL' => '2.060';

on configure => sub { requires 'ExtUtils::MakeMaker' => '7.44' };
on test      => sub {
    requires 'DBD::SQLite'     => '1.66';
    requires 'Plack'           => '1.0050';
    requires 'Test::Fatal'     => '0.016';
    requires 'Test::More'      => '1.302';
    requires 'Test::Refcount'  => '0.10';
    requires 'IO::Socket::SSL' => '2.060';
};
