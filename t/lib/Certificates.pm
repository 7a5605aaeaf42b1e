package Certificates;

# Certificates for a test, made with the openssl command in a directory that goes with the object.

use strict;
use warnings;

use File::Copy qw(copy);
use File::Temp ();
use POSIX      ();

sub new {
    my ($class) = @_;
    my $self    = bless { dir => File::Temp->newdir }, $class;
    return $self;
}

sub path {
    my ($self, $name) = @_;
    return "$self->{dir}/$name";
}

# The paths of a certificate and its key, as PAGI::Server's `ssl` wants them.
sub pair {
    my ($self, $name) = @_;
    return (cert_file => $self->path("$name.pem"), key_file => $self->path("$name.key"));
}

sub _openssl {
    my ($self, @arguments) = @_;
    my $log = $self->path('openssl.log');
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        open STDOUT, '>',  $log     or die "$log: $!";
        open STDERR, '>&', \*STDOUT or die "stderr: $!";
        exec 'openssl', @arguments;
        die "openssl: $!";
    }
    waitpid $pid, 0;
    die "openssl @arguments: " . $self->read('openssl.log') if $?;
    return $self;
}

sub read {
    my ($self, $name) = @_;
    open my $in, '<', $self->path($name) or die "$name: $!";
    local $/;
    return scalar <$in>;
}

sub write {
    my ($self, $name, $text) = @_;
    open my $out, '>', $self->path($name) or die "$name: $!";
    print {$out} $text;
    close $out or die "$name: $!";
    return $self;
}

# Puts a copy of another file in a file's place, in one step.
sub replace {
    my ($self, $name, $source) = @_;
    copy($self->path($source), $self->path("$name.new")) or die "$source: $!";
    rename $self->path("$name.new"), $self->path($name) or die "$name: $!";
    return $self;
}

# A key: elliptic, or RSA of this many bits.
sub key {
    my ($self, $name, $bits) = @_;
    return $self->_openssl('genrsa', '-out', $self->path("$name.key"), $bits) if $bits;
    return $self->_openssl(qw(ecparam -name prime256v1 -genkey -noout -out), $self->path("$name.key"));
}

sub authority {
    my ($self, $name) = @_;
    return $self->key($name)->_openssl(
        qw(req -new -x509 -days 100 -addext),
        'basicConstraints=critical,CA:TRUE',
        '-subj', "/CN=$name", '-key', $self->path("$name.key"),
        '-out',  $self->path("$name.pem"),
    );
}

# A certificate by an authority. Options: by, subject, extensions (lines), bits, days.
sub issue {
    my ($self, $name, %options) = @_;
    my $by = $options{by} // 'ca';
    $self->key($name, $options{bits});
    $self->write("$name.ext", join '',
        map { "$_\n" } @{ $options{extensions} // ["subjectAltName=DNS:$name"] });
    $self->_openssl(
        qw(req -new -utf8 -subj),
        $options{subject} // "/CN=$name",
        '-key', $self->path("$name.key"),
        '-out', $self->path("$name.csr"),
    );
    return $self->_openssl(
        qw(x509 -req -CAcreateserial),
        -days    => $options{days} // 2,
        -in      => $self->path("$name.csr"),
        -CA      => $self->path("$by.pem"),
        -CAkey   => $self->path("$by.key"),
        -extfile => $self->path("$name.ext"),
        -out     => $self->path("$name.pem"),
    );
}

# Makes a certificate anew, valid between two times in seconds since 1970.
sub date {
    my ($self, $name, @times) = @_;
    my ($from, $to) = map { POSIX::strftime('%Y%m%d%H%M%SZ', gmtime $_) } @times;
    $self->write('ca.txt', '')->write('ca.serial', "01\n")->write('ca.conf', <<"CONF");
[ca]
default_ca = here
[here]
database = ${\$self->path('ca.txt')}
serial = ${\$self->path('ca.serial')}
new_certs_dir = ${\$self->path('')}
policy = any
default_md = sha256
[any]
commonName = supplied
CONF
    return $self->_openssl(
        qw(ca -batch -notext -config),
        $self->path('ca.conf'),
        -startdate => $from,
        -enddate   => $to,
        -in        => $self->path("$name.csr"),
        -extfile   => $self->path("$name.ext"),
        -cert      => $self->path('ca.pem'),
        -keyfile   => $self->path('ca.key'),
        -out       => $self->path("$name.pem"),
    );
}

# Makes an encrypted copy of a key.
sub encrypt {
    my ($self, $name, $into, $password) = @_;
    return $self->_openssl(
        qw(pkcs8 -topk8 -in),
        $self->path("$name.key"),
        '-out',     $self->path("$into.key"),
        '-passout', "pass:$password",
    );
}

1;
