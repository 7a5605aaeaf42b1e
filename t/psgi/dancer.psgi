# A small application of Dancer2.
use strict;
use warnings;
use experimental 'signatures';

package Application;
use Dancer2;

set session => 'Simple';
get '/'       => sub { 'Hello ' . (query_parameters->get('name') // '') };
get '/count'  => sub { session n => (session('n') // 0) + 1; session 'n' };
get '/file'   => sub { send_file __FILE__, system_path => 1 };
get '/stream' => sub {
    delayed { flush; content $_ for qw(a b c); done }
};
get '/url' => sub { uri_for '/x' };
get '/die' => sub { die "the application dies\n" };
post '/upload' => sub { my $file = upload('file'); $file->size . ' ' . $file->filename };

Application->to_app;
