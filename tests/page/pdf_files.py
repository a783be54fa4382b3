"""PDFs of one page, written by hand."""

PASSWORD = b"/Encrypt << /Filter /Standard /V 1 /R 2 /O (%b) /U (%b) /P -4 >> /ID [(a) (a)]" % (b"o" * 32, b"u" * 32)


def pdf(*lines: str, locked: bool = False) -> bytes:
    """A page with these lines; without any it is as empty as a scan without its picture. locked: by a password."""
    shown = "".join(f"({line}) Tj T* " for line in lines)
    content = f"BT /F1 12 Tf 14 TL 72 720 Td {shown}ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R /Resources 6 0 R >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Font << /F1 5 0 R >> >>",
    ]
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer\n<< /Size %d /Root 1 0 R %b >>\n" % (len(objects) + 1, PASSWORD if locked else b"")
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    return data + head + table + trailer + b"startxref\n%d\n%%%%EOF\n" % len(data)
