//! The log line for a reloaded certificate: its names, and its expiry.

use std::fmt;
use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use super::messages::names;

/// Beyond the expiry of any certificate, since years have four digits.
const FAR: Duration = Duration::from_secs(1 << 40);

/// Logs a certificate that has replaced another one in this process.
pub(super) fn log_renewal(
    role: &'static str,
    old: Option<&CertificateDer<'_>>,
    new: Option<&CertificateDer<'_>>,
) {
    let Some(new) = new.filter(|new| Some(*new) != old) else { return };
    let Ok(certificate) = EndEntityCert::try_from(new) else { return };
    let (names, valid_until) = (names_of(&certificate), end_of(&certificate).map(Date));
    rpc_core::limited_log!(
        target: "farcall::server",
        process_wide, INFO, "read a certificate again", role, names,
        valid_until = valid_until.map(tracing::field::display)
    );
}

/// Returns the end of a certificate's validity.
pub(super) fn valid_until(leaf: Option<&CertificateDer<'_>>) -> Option<SystemTime> {
    let end = end_of(&EndEntityCert::try_from(leaf?).ok()?)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(end))
}

/// Returns the names that a certificate is for. webpki lists them in its error for a wrong name.
fn names_of(certificate: &EndEntityCert<'_>) -> String {
    let other = ServerName::try_from("names.invalid");
    match other.map(|other| certificate.verify_is_valid_for_subject_name(&other)) {
        Ok(Err(webpki::Error::CertNotValidForName(context))) => names(&context.presented),
        _ => String::new(),
    }
}

/// Returns a certificate's expiry. webpki checks that before it looks for an authority.
fn end_of(certificate: &EndEntityCert<'_>) -> Option<u64> {
    let (far, usage) = (UnixTime::since_unix_epoch(FAR), KeyUsage::server_auth());
    match certificate.verify_for_usage(&[], &[], &[], far, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => Some(not_after.as_secs()),
        _ => None,
    }
}

/// Seconds since 1970, displayed as a UTC date.
struct Date(u64);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Uses the civil calendar with years from March, which puts a leap day at the end of its
        // year.
        let (days, seconds) = (self.0 / 86_400 + 719_468, self.0 % 86_400);
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let year = era * 400 + year + carry;
        let (hour, minute) = (seconds / 3600, seconds / 60 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Date(seconds).to_string(), date);
        }
    }

    #[test]
    fn names_and_expiry_come_from_the_certificate() {
        let key = KeyPair::generate().unwrap();
        let names = ["a.example", "*.b.example", "10.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(2031, 7, 4);
        let certificate = params.self_signed(&key).unwrap();
        let certificate = EndEntityCert::try_from(certificate.der()).unwrap();
        assert_eq!(names_of(&certificate), "a.example, *.b.example, 10.0.0.1");
        let end = end_of(&certificate).map(|end| Date(end).to_string());
        assert_eq!(end.as_deref(), Some("2031-07-04T00:00:00Z"));
    }
}
