# A small application of Catalyst.
use strict;
use warnings;
use experimental 'signatures';

package Application::Controller::Root;
use Moose;
BEGIN { extends 'Catalyst::Controller' }
__PACKAGE__->config(namespace => '');

my $count = 0;
sub index : Path : Args(0) { my ($self, $c) = @_; $c->res->body('Hello ' . ($c->req->param('name') // '')) }
sub stream :
    Local { my ($self, $c) = @_; $c->res->content_type('text/plain'); $c->res->write($_) for qw(a b c) }
sub count : Local { my ($self, $c) = @_; $c->res->body(++$count) }
sub file : Local  { my ($self, $c) = @_; open my $handle, '<', __FILE__ or die $!; $c->res->body($handle) }
sub url : Local   { my ($self, $c) = @_; $c->res->body($c->uri_for('/x')->as_string) }

sub upload : Local {
    my ($self, $c) = @_;
    my $file = $c->req->upload('file');
    $c->res->body($file->size . ' ' . $file->filename);
}
sub fail : Path('die') { die "the application dies\n" }

package Application;
use Catalyst;
BEGIN { $INC{'Application.pm'} = $INC{'Application/Controller/Root.pm'} = __FILE__ }
__PACKAGE__->config(name => 'Application', encoding => undef);
__PACKAGE__->setup;
__PACKAGE__->psgi_app;
