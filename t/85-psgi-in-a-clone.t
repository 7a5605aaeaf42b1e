# Runs t/85-psgi.t with the application in an interpreter that is cloned into a thread.
use strict;
use warnings;

use lib 't/lib';
use Peregrine::Threads;
use Test::More;
use TestTools;

plan skip_all => 'this Perl has no threads, or this is not Linux'
    if !Peregrine::Threads::are_possible();

our %PLACEMENT = (engine => 'thread', workers => 1);
do './t/85-psgi.t' // die $@ || $!;
