//! Media types by file extension (IANA media types registry; RFC 9239 for JavaScript).
//! Does not know: files.
const std = @import("std");

/// A media type of a file.
pub const Mime = enum {
    text_plain,
    text_html,
    text_css,
    text_csv,
    text_tsv,
    text_markdown,
    text_calendar,
    text_vcard,
    text_vtt,
    text_xml,
    text_yaml,
    application_javascript,
    application_json,
    application_ld_json,
    application_manifest_json,
    application_geo_json,
    application_json_lines,
    application_xml,
    application_xhtml_xml,
    application_atom_xml,
    application_rss_xml,
    application_gpx_xml,
    application_kml_xml,
    application_mathml_xml,
    application_wasm,
    application_pdf,
    application_rtf,
    application_postscript,
    application_epub_zip,
    application_msword,
    application_docx,
    application_xls,
    application_xlsx,
    application_ppt,
    application_pptx,
    application_odt,
    application_ods,
    application_odp,
    application_zip,
    application_gzip,
    application_zstd,
    application_bzip2,
    application_xz,
    application_7z,
    application_rar,
    application_tar,
    application_jar,
    application_deb,
    application_rpm,
    application_apk,
    application_dmg,
    application_iso,
    application_sqlite,
    application_torrent,
    application_sh,
    application_sql,
    application_toml,
    application_mpegurl,
    application_dash_xml,
    application_pem,
    application_octet_stream,
    font_woff,
    font_woff2,
    font_ttf,
    font_otf,
    font_collection,
    font_eot,
    image_avif,
    image_webp,
    image_png,
    image_apng,
    image_jpeg,
    image_jxl,
    image_gif,
    image_svg_xml,
    image_bmp,
    image_icon,
    image_tiff,
    image_heic,
    image_heif,
    audio_mpeg,
    audio_mp4,
    audio_aac,
    audio_ogg,
    audio_opus,
    audio_flac,
    audio_wav,
    audio_webm,
    audio_midi,
    video_mp4,
    video_webm,
    video_ogg,
    video_mpeg,
    video_quicktime,
    video_matroska,
    video_avi,
    video_mp2t,
    video_3gpp,
    video_flv,
    model_gltf_json,
    model_gltf_binary,
    model_stl,
    model_obj,

    /// The type as it goes into Content-Type, without a charset: "text/html".
    pub fn toString(mime: Mime) []const u8 {
        return rows[@backingInt(mime)].text;
    }

    /// The type of an extension with its dot (".html"), compared without case; `text_plain` if it is not
    /// known.
    pub fn fromExtension(extension: []const u8) Mime {
        return find(extension) orelse .text_plain;
    }

    /// The type of a file by its name; `application_octet_stream` if the extension is not known or there is
    /// none, so that no browser displays content of unknown type.
    pub fn fromPath(path: []const u8) Mime {
        return find(std.fs.path.extension(path)) orelse .application_octet_stream;
    }

    /// Whether the type of a file is known by its extension.
    pub fn isKnown(path: []const u8) bool {
        return find(std.fs.path.extension(path)) != null;
    }

    /// Whether files of this type are text, whose encoding a client wants to know.
    pub fn isText(mime: Mime) bool {
        return std.mem.startsWith(u8, mime.toString(), "text/");
    }

    /// Whether compression is likely to make files of this type smaller.
    pub fn isCompressible(mime: Mime) bool {
        const text = mime.toString();
        if (mime.isText() or std.mem.endsWith(u8, text, "xml") or std.mem.find(u8, text, "json") != null) {
            return true;
        }
        return switch (mime) {
            .application_wasm, .application_postscript, .application_rtf, .application_sh => true,
            .application_sql, .application_toml, .text_yaml, .font_ttf, .font_otf, .font_eot => true,
            .image_bmp, .image_icon, .application_mpegurl, .model_obj => true,
            else => false,
        };
    }

    fn find(extension: []const u8) ?Mime {
        if (extension.len < 2 or extension.len > 1 + extension_bytes_max or extension[0] != '.') return null;
        var buffer: [extension_bytes_max]u8 = undefined;
        return by_extension.get(std.ascii.lowerString(&buffer, extension[1..]));
    }
};

const extension_bytes_max = 16;

const Row = struct {
    mime: Mime,
    text: []const u8,
    /// Lower case, without dots, separated by spaces.
    extensions: []const u8,
};

/// The types in the order of the enum.
const rows = [_]Row{
    .{ .mime = .text_plain, .text = "text/plain", .extensions = "txt text log conf ini cfg" },
    .{ .mime = .text_html, .text = "text/html", .extensions = "html htm shtml" },
    .{ .mime = .text_css, .text = "text/css", .extensions = "css" },
    .{ .mime = .text_csv, .text = "text/csv", .extensions = "csv" },
    .{ .mime = .text_tsv, .text = "text/tab-separated-values", .extensions = "tsv" },
    .{ .mime = .text_markdown, .text = "text/markdown", .extensions = "md markdown" },
    .{ .mime = .text_calendar, .text = "text/calendar", .extensions = "ics ifb" },
    .{ .mime = .text_vcard, .text = "text/vcard", .extensions = "vcf vcard" },
    .{ .mime = .text_vtt, .text = "text/vtt", .extensions = "vtt" },
    .{ .mime = .text_xml, .text = "text/xml", .extensions = "" },
    .{ .mime = .text_yaml, .text = "application/yaml", .extensions = "yaml yml" },
    .{ .mime = .application_javascript, .text = "text/javascript", .extensions = "js mjs cjs" },
    .{ .mime = .application_json, .text = "application/json", .extensions = "json map" },
    .{ .mime = .application_ld_json, .text = "application/ld+json", .extensions = "jsonld" },
    .{ .mime = .application_manifest_json, .text = "application/manifest+json", .extensions = "webmanifest" },
    .{ .mime = .application_geo_json, .text = "application/geo+json", .extensions = "geojson" },
    .{ .mime = .application_json_lines, .text = "application/jsonl", .extensions = "jsonl ndjson" },
    .{ .mime = .application_xml, .text = "application/xml", .extensions = "xml xsl xsd" },
    .{ .mime = .application_xhtml_xml, .text = "application/xhtml+xml", .extensions = "xhtml xht" },
    .{ .mime = .application_atom_xml, .text = "application/atom+xml", .extensions = "atom" },
    .{ .mime = .application_rss_xml, .text = "application/rss+xml", .extensions = "rss" },
    .{ .mime = .application_gpx_xml, .text = "application/gpx+xml", .extensions = "gpx" },
    .{ .mime = .application_kml_xml, .text = "application/vnd.google-earth.kml+xml", .extensions = "kml" },
    .{ .mime = .application_mathml_xml, .text = "application/mathml+xml", .extensions = "mathml" },
    .{ .mime = .application_wasm, .text = "application/wasm", .extensions = "wasm" },
    .{ .mime = .application_pdf, .text = "application/pdf", .extensions = "pdf" },
    .{ .mime = .application_rtf, .text = "application/rtf", .extensions = "rtf" },
    .{ .mime = .application_postscript, .text = "application/postscript", .extensions = "ps eps ai" },
    .{ .mime = .application_epub_zip, .text = "application/epub+zip", .extensions = "epub" },
    .{ .mime = .application_msword, .text = "application/msword", .extensions = "doc dot" },
    .{
        .mime = .application_docx,
        .text = "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        .extensions = "docx",
    },
    .{ .mime = .application_xls, .text = "application/vnd.ms-excel", .extensions = "xls" },
    .{
        .mime = .application_xlsx,
        .text = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        .extensions = "xlsx",
    },
    .{ .mime = .application_ppt, .text = "application/vnd.ms-powerpoint", .extensions = "ppt" },
    .{
        .mime = .application_pptx,
        .text = "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        .extensions = "pptx",
    },
    .{ .mime = .application_odt, .text = "application/vnd.oasis.opendocument.text", .extensions = "odt" },
    .{
        .mime = .application_ods,
        .text = "application/vnd.oasis.opendocument.spreadsheet",
        .extensions = "ods",
    },
    .{
        .mime = .application_odp,
        .text = "application/vnd.oasis.opendocument.presentation",
        .extensions = "odp",
    },
    .{ .mime = .application_zip, .text = "application/zip", .extensions = "zip" },
    .{ .mime = .application_gzip, .text = "application/gzip", .extensions = "gz tgz" },
    .{ .mime = .application_zstd, .text = "application/zstd", .extensions = "zst" },
    .{ .mime = .application_bzip2, .text = "application/x-bzip2", .extensions = "bz2" },
    .{ .mime = .application_xz, .text = "application/x-xz", .extensions = "xz" },
    .{ .mime = .application_7z, .text = "application/x-7z-compressed", .extensions = "7z" },
    .{ .mime = .application_rar, .text = "application/vnd.rar", .extensions = "rar" },
    .{ .mime = .application_tar, .text = "application/x-tar", .extensions = "tar" },
    .{ .mime = .application_jar, .text = "application/java-archive", .extensions = "jar war ear" },
    .{ .mime = .application_deb, .text = "application/vnd.debian.binary-package", .extensions = "deb" },
    .{ .mime = .application_rpm, .text = "application/x-rpm", .extensions = "rpm" },
    .{ .mime = .application_apk, .text = "application/vnd.android.package-archive", .extensions = "apk" },
    .{ .mime = .application_dmg, .text = "application/x-apple-diskimage", .extensions = "dmg" },
    .{ .mime = .application_iso, .text = "application/x-iso9660-image", .extensions = "iso" },
    .{ .mime = .application_sqlite, .text = "application/vnd.sqlite3", .extensions = "sqlite sqlite3 db" },
    .{ .mime = .application_torrent, .text = "application/x-bittorrent", .extensions = "torrent" },
    .{ .mime = .application_sh, .text = "application/x-sh", .extensions = "sh" },
    .{ .mime = .application_sql, .text = "application/sql", .extensions = "sql" },
    .{ .mime = .application_toml, .text = "application/toml", .extensions = "toml" },
    .{ .mime = .application_mpegurl, .text = "application/vnd.apple.mpegurl", .extensions = "m3u8" },
    .{ .mime = .application_dash_xml, .text = "application/dash+xml", .extensions = "mpd" },
    .{ .mime = .application_pem, .text = "application/x-pem-file", .extensions = "pem" },
    .{
        .mime = .application_octet_stream,
        .text = "application/octet-stream",
        .extensions = "bin exe dll so dat",
    },
    .{ .mime = .font_woff, .text = "font/woff", .extensions = "woff" },
    .{ .mime = .font_woff2, .text = "font/woff2", .extensions = "woff2" },
    .{ .mime = .font_ttf, .text = "font/ttf", .extensions = "ttf" },
    .{ .mime = .font_otf, .text = "font/otf", .extensions = "otf" },
    .{ .mime = .font_collection, .text = "font/collection", .extensions = "ttc" },
    .{ .mime = .font_eot, .text = "application/vnd.ms-fontobject", .extensions = "eot" },
    .{ .mime = .image_avif, .text = "image/avif", .extensions = "avif avifs" },
    .{ .mime = .image_webp, .text = "image/webp", .extensions = "webp" },
    .{ .mime = .image_png, .text = "image/png", .extensions = "png" },
    .{ .mime = .image_apng, .text = "image/apng", .extensions = "apng" },
    .{ .mime = .image_jpeg, .text = "image/jpeg", .extensions = "jpg jpeg jpe jfif" },
    .{ .mime = .image_jxl, .text = "image/jxl", .extensions = "jxl" },
    .{ .mime = .image_gif, .text = "image/gif", .extensions = "gif" },
    .{ .mime = .image_svg_xml, .text = "image/svg+xml", .extensions = "svg" },
    .{ .mime = .image_bmp, .text = "image/bmp", .extensions = "bmp" },
    .{ .mime = .image_icon, .text = "image/vnd.microsoft.icon", .extensions = "ico cur" },
    .{ .mime = .image_tiff, .text = "image/tiff", .extensions = "tif tiff" },
    .{ .mime = .image_heic, .text = "image/heic", .extensions = "heic" },
    .{ .mime = .image_heif, .text = "image/heif", .extensions = "heif" },
    .{ .mime = .audio_mpeg, .text = "audio/mpeg", .extensions = "mp3" },
    .{ .mime = .audio_mp4, .text = "audio/mp4", .extensions = "m4a" },
    .{ .mime = .audio_aac, .text = "audio/aac", .extensions = "aac" },
    .{ .mime = .audio_ogg, .text = "audio/ogg", .extensions = "ogg oga" },
    .{ .mime = .audio_opus, .text = "audio/ogg; codecs=opus", .extensions = "opus" },
    .{ .mime = .audio_flac, .text = "audio/flac", .extensions = "flac" },
    .{ .mime = .audio_wav, .text = "audio/wav", .extensions = "wav" },
    .{ .mime = .audio_webm, .text = "audio/webm", .extensions = "weba" },
    .{ .mime = .audio_midi, .text = "audio/midi", .extensions = "mid midi" },
    .{ .mime = .video_mp4, .text = "video/mp4", .extensions = "mp4 m4v" },
    .{ .mime = .video_webm, .text = "video/webm", .extensions = "webm" },
    .{ .mime = .video_ogg, .text = "video/ogg", .extensions = "ogv" },
    .{ .mime = .video_mpeg, .text = "video/mpeg", .extensions = "mpg mpeg" },
    .{ .mime = .video_quicktime, .text = "video/quicktime", .extensions = "mov qt" },
    .{ .mime = .video_matroska, .text = "video/matroska", .extensions = "mkv" },
    .{ .mime = .video_avi, .text = "video/x-msvideo", .extensions = "avi" },
    .{ .mime = .video_mp2t, .text = "video/mp2t", .extensions = "ts" },
    .{ .mime = .video_3gpp, .text = "video/3gpp", .extensions = "3gp 3gpp" },
    .{ .mime = .video_flv, .text = "video/x-flv", .extensions = "flv" },
    .{ .mime = .model_gltf_json, .text = "model/gltf+json", .extensions = "gltf" },
    .{ .mime = .model_gltf_binary, .text = "model/gltf-binary", .extensions = "glb" },
    .{ .mime = .model_stl, .text = "model/stl", .extensions = "stl" },
    .{ .mime = .model_obj, .text = "model/obj", .extensions = "obj" },
};

const by_extension: std.StaticStringMap(Mime) = .initComptime(pairs: {
    @setEvalBranchQuota(100_000);
    var list: []const struct { []const u8, Mime } = &.{};
    for (rows, 0..) |row, number| {
        if (@backingInt(row.mime) != number) @compileError("out of order: " ++ row.text);
        var extensions = std.mem.tokenizeScalar(u8, row.extensions, ' ');
        while (extensions.next()) |extension| list = list ++ .{.{ extension, row.mime }};
    }
    break :pairs list;
});

const testing = std.testing;

test "types by extension, in any case" {
    try testing.expectEqual(Mime.text_html, Mime.fromExtension(".html"));
    try testing.expectEqual(Mime.image_jpeg, Mime.fromExtension(".JPEG"));
    try testing.expectEqual(Mime.text_plain, Mime.fromExtension(".nobody-knows-this-one"));
    try testing.expectEqual(Mime.text_plain, Mime.fromExtension(""));
    try testing.expectEqual(Mime.text_plain, Mime.fromExtension("html"));
    try testing.expectEqual(Mime.application_gzip, Mime.fromPath("/a.b/c.tar.gz"));
    try testing.expectEqual(Mime.application_octet_stream, Mime.fromPath("/a.html/README"));
    try testing.expectEqualStrings("image/svg+xml", Mime.image_svg_xml.toString());
}

test "every extension finds its own row, and no extension stands in two" {
    var count: usize = 0;
    for (rows) |row| {
        var extensions = std.mem.tokenizeScalar(u8, row.extensions, ' ');
        while (extensions.next()) |extension| : (count += 1) {
            try testing.expectEqual(row.mime, by_extension.get(extension).?);
            try testing.expect(extension.len <= extension_bytes_max);
        }
    }
    try testing.expect(count > 120);
}

test "types that are worth compressing" {
    for ([_]Mime{ .text_html, .application_json, .image_svg_xml, .application_wasm }) |mime| {
        try testing.expect(mime.isCompressible());
    }
    for ([_]Mime{ .image_png, .application_zip, .video_mp4, .font_woff2 }) |mime| {
        try testing.expect(!mime.isCompressible());
    }
}
