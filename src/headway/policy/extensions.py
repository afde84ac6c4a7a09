"""File extensions that surely say what a URL holds, so that an unwanted type need not be asked for.

What a server program may answer with anything (`.php`, `.cgi`, `.asp`) or what varies in practice (`.ts`,
`.md`, source code) is left out: the answer's Content-Type decides there.
"""

from __future__ import annotations

_EXTENSIONS = {
    "application/pdf": "pdf",
    "application/postscript": "ps eps",
    "text/plain": "txt",
    "text/css": "css",
    "text/csv": "csv tsv",
    "text/calendar": "ics",
    "text/vcard": "vcf",
    "text/javascript": "js mjs",
    "application/json": "json map jsonld geojson webmanifest",
    "application/xml": "xml xsd xsl xslt",
    "application/rss+xml": "rss",
    "application/atom+xml": "atom",
    "application/wasm": "wasm",
    "application/rtf": "rtf",
    "application/epub+zip": "epub mobi azw azw3 djvu",
    "application/msword": "doc docx docm dotx",
    "application/vnd.ms-excel": "xls xlt xlsx xlsm xlsb",
    "application/vnd.ms-powerpoint": "ppt pps pptx ppsx",
    "application/vnd.oasis.opendocument": "odt ods odp odg odf",
    "application/x-dvi": "dvi",
    "application/zip": "zip jar war ear apk xpi crx whl egg nupkg cbz",
    "application/gzip": "gz tgz bz2 tbz tbz2 xz txz lz lzma zst 7z rar tar cpio cab lzh arj warc",
    "application/octet-stream": "bin exe dll dylib msi dmg pkg iso img deb rpm snap flatpak appimage pyc "
    "sqlite mdb torrent swf psd xcf blend dwg dxf stl pcap sig asc",
    "application/sql": "sql",
    "font/woff": "woff woff2 ttf otf eot",
    "image/jpeg": "jpg jpeg jpe jfif",
    "image/png": "png apng",
    "image/gif": "gif",
    "image/svg+xml": "svg svgz",
    "image/webp": "webp",
    "image/avif": "avif heic heif jxl",
    "image/tiff": "tif tiff",
    "image/bmp": "bmp dib",
    "image/x-icon": "ico cur",
    "image/x-portable-anymap": "pnm pbm pgm ppm xbm xpm tga pcx ras",
    "audio/mpeg": "mp3 mp2 m3u m3u8 pls",
    "audio/ogg": "ogg oga opus spx",
    "audio/wav": "wav aif aiff snd",
    "audio/flac": "flac",
    "audio/mp4": "m4a m4b aac wma ram mid midi",
    "video/mp4": "mp4 m4v mov qt 3gp 3g2",
    "video/mpeg": "mpg mpeg mpe vob",
    "video/webm": "webm mkv ogv",
    "video/x-msvideo": "avi wmv asf flv f4v rmvb",
}

TYPE_OF_EXTENSION = {
    extension: media_type
    for media_type, extensions in _EXTENSIONS.items()
    for extension in extensions.split()
}
"""Extension, in lower case and without its dot, to a media type of its family."""
