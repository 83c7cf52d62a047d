//! What a client asks to be answered in (RFC 9110, section 12.5.1), as far as there is a choice.

use axum::http::{HeaderMap, header};

/// Content type of statements and of COSE receipts.
pub const COSE: &str = "application/cose";
/// Content type of COSE keys.
pub const CBOR: &str = "application/cbor";
/// Content type of errors in CBOR (RFC 9290).
pub const PROBLEM_CBOR: &str = "application/concise-problem-details+cbor";

/// Whether a content type names a media type: without regard to case, and whatever parameters follow.
pub fn is_of_type(content_type: &str, media_type: &str) -> bool {
    let named = content_type.split(';').next().unwrap_or_default();
    named.trim().eq_ignore_ascii_case(media_type)
}

/// Whether a COSE receipt is asked for, rather than a proof as text.
pub fn asks_for_cose(headers: &HeaderMap) -> bool {
    let cose = weight(headers, COSE);
    cose > 0 && cose >= weight(headers, "text/plain")
}

/// Whether errors are to be CBOR: whoever asks for CBOR of any kind can read that, and need not read JSON.
pub fn asks_for_cbor(headers: &HeaderMap) -> bool {
    [COSE, CBOR, PROBLEM_CBOR].iter().any(|media_type| weight(headers, media_type) > 0)
}

/// The weight, in thousandths, that is given to a media type by its name; wildcards name nothing.
fn weight(headers: &HeaderMap, media_type: &str) -> u16 {
    let ranges = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let weights = ranges.flat_map(|value| value.split(',')).filter_map(|range| {
        let mut parameters = range.split(';').skip(1).map(str::trim);
        let weight = parameters.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        is_of_type(range, media_type).then(|| weight.map_or(1000, thousandths))
    });
    weights.max().unwrap_or(0)
}

/// A weight such as `0.5`; what is none counts as nothing.
fn thousandths(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "1" => 1000,
        "0" if digits => format!("{fraction:0<3}").parse().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (header::ACCEPT, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_content_type_is_named_in_any_case_and_with_parameters() {
        for found in ["application/cose", "Application/COSE", "application/cose ;cose-type=\"cose-sign1\""] {
            assert!(is_of_type(found, COSE), "{found}");
        }
        for found in
            ["", ";application/cose", "application/cose-key", "application/cos", "text/application/cose"]
        {
            assert!(!is_of_type(found, COSE), "{found}");
        }
    }

    #[test]
    fn cose_is_asked_for_by_its_name_and_its_weight() {
        for asks in [
            &["application/cose"][..],
            &["application/cbor", "application/cose"],
            &["text/html, Application/COSE;q=0.2"],
            &["application/cose; q=0.5, text/plain;q=0.5"],
            &["application/cose;cose-type=cose-sign1"],
        ] {
            assert!(asks_for_cose(&headers(asks)), "{asks:?}");
        }
        for not in [
            &[][..],
            &["*/*"],
            &["application/*"],
            &["application/cbor"],
            &["application/cose;q=0"],
            &["application/cose;q=0.000"],
            &["application/cose;q=x"],
            &["application/cose;q=0.5, text/plain"],
        ] {
            assert!(!asks_for_cose(&headers(not)), "{not:?}");
        }
        assert!(asks_for_cbor(&headers(&["application/cbor"])));
        assert!(asks_for_cbor(&headers(&["application/concise-problem-details+cbor, */*"])));
        assert!(!asks_for_cbor(&headers(&["application/json", "*/*"])));
    }
}
