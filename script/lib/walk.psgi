# The application of script/walk in process.
use v5.36;

return sub { return [ 200, [], ['hello'] ] };
