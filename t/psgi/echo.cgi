#!/usr/bin/perl
print "Content-Type: text/plain\r\n\r\n$ENV{REQUEST_METHOD} $ENV{QUERY_STRING} ", <STDIN>;
