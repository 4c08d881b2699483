//! Enough of S3: objects, parts, listings in pages of two. Requests without a signature are refused.

use std::fs::{self, File};
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

use super::{Act, Head, KEY_ID, Shared, answer, give, store};

impl Shared {
    pub(super) fn s3(
        &self,
        head: &Head,
        body: &Path,
        stream: &mut TcpStream,
        act: Option<Act>,
    ) -> io::Result<()> {
        if !is_signed(head, body)? {
            let denied = b"<Error><Code>SignatureDoesNotMatch</Code></Error>";
            return answer(stream, 403, "", denied);
        }
        let place = self.root.join(head.path.trim_start_matches('/'));
        let part = |number: &str, upload: &str| self.root.join(format!("part-{upload}-{number}"));
        let query = |name: &str| head.query.get(name).map(String::as_str);
        match (&*head.method, query("uploadId")) {
            ("POST", None) if query("uploads").is_some() => {
                let upload = self.fresh.fetch_add(1, Ordering::Relaxed);
                let xml = format!(
                    "<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                );
                answer(stream, 200, "", xml.as_bytes())
            }
            ("PUT", Some(upload)) => {
                fs::rename(body, part(query("partNumber").unwrap_or_default(), upload))?;
                answer(stream, 200, "etag: \"part\"\r\n", b"")
            }
            ("POST", Some(upload)) => {
                let mut whole = File::create(body)?;
                for number in 1.. {
                    let Ok(mut part) = File::open(part(&number.to_string(), upload)) else {
                        break;
                    };
                    io::copy(&mut part, &mut whole)?;
                }
                store(body, &place)?;
                let xml = b"<CompleteMultipartUploadResult><ETag>\"whole\"</ETag></CompleteMultipartUploadResult>";
                answer(stream, 200, "", xml)
            }
            ("DELETE", Some(_)) => answer(stream, 204, "", b""),
            ("PUT", None) => {
                store(body, &place)?;
                answer(stream, 200, "etag: \"one\"\r\n", b"")
            }
            ("DELETE", None) => {
                fs::remove_file(place).ok(); // S3 does not say whether there was one
                answer(stream, 204, "", b"")
            }
            ("GET", None) if query("list-type").is_some() => {
                let xml = list(
                    &place,
                    query("prefix").unwrap_or_default(),
                    query("continuation-token"),
                )?;
                answer(stream, 200, "", xml.as_bytes())
            }
            (method, _) => {
                let modified = fs::metadata(&place).and_then(|found| found.modified());
                let [year, month, day, hour, minute, second] =
                    civil(modified.unwrap_or(UNIX_EPOCH));
                let month = MONTHS[usize::try_from(month - 1).expect("a month")];
                let headers = format!(
                    "etag: \"one\"\r\nlast-modified: {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT\r\n"
                );
                give(stream, &place, method == "HEAD", &headers, act)
            }
        }
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Whether there is a signature, and the body is what was signed.
fn is_signed(head: &Head, body: &Path) -> io::Result<bool> {
    let authorization = head.header("authorization");
    let begins = authorization.starts_with(&format!("AWS4-HMAC-SHA256 Credential={KEY_ID}/"));
    let signature = authorization
        .rsplit_once("Signature=")
        .map_or("", |(_, it)| it);
    let is_hex = signature.len() == 64 && signature.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(body)?, &mut Hashing(&mut hasher))?;
    let hash: String = hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let signed_body = head.header("x-amz-content-sha256");
    Ok(begins && is_hex && !head.header("x-amz-date").is_empty() && (signed_body == hash))
}

struct Hashing<'a>(&'a mut Sha256);

impl io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn list(bucket: &Path, prefix: &str, after: Option<&str>) -> io::Result<String> {
    let mut keys = Vec::new();
    find(bucket, bucket, &mut keys)?;
    keys.retain(|(key, _)| key.starts_with(prefix) && after.is_none_or(|after| &**key > after));
    keys.sort();
    let mut xml = String::from("<ListBucketResult>");
    for (key, path) in keys.iter().take(2) {
        let found = fs::metadata(path)?;
        let [year, month, day, hour, minute, second] = civil(found.modified()?);
        let size = found.len();
        xml += &format!(
            "<Contents><Key>{key}</Key><LastModified>{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z</LastModified><Size>{size}</Size></Contents>"
        );
    }
    if let Some((last, _)) = keys.get(1).filter(|_| keys.len() > 2) {
        xml += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
    }
    Ok(xml + "</ListBucketResult>")
}

fn find(bucket: &Path, folder: &Path, keys: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(bucket, &path, keys)?;
        } else {
            let key = path
                .strip_prefix(bucket)
                .expect("below it")
                .display()
                .to_string();
            keys.push((key, path));
        }
    }
    Ok(())
}

/// Year, month, day, hour, minute, second (after Howard Hinnant's `civil_from_days`).
fn civil(time: SystemTime) -> [u64; 6] {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year + era * 400 + u64::from(month <= 2);
    [
        year,
        month,
        day,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    ]
}
