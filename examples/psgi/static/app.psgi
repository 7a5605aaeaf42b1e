# The files of a directory for PSGI: conditions, ranges, precompressed siblings, a listing.
#
#     peregrine examples/psgi/static/app.psgi
#     curl -i --compressed http://127.0.0.1:5000/story.txt
#
# `peregrine --static /=examples/pagi/static/site` serves them without any Perl code.
use strict;
use warnings;

use File::Basename qw(dirname);
use PAGI::App::Directory;

PAGI::App::Directory->new(root => dirname(__FILE__) . '/../../pagi/static/site')->to_psgi_app;
