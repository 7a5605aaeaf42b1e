/* hiredis.h - for translation to Zig */
#include <hiredis/hiredis.h>
