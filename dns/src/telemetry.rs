//! What the DNS server tells about itself, under CoreDNS' names.

use std::time::Instant;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::Name;
use pintle_serving::health::Scope;
use pintle_serving::metrics::{Counter, Histogram};
use pintle_serving::telemetry::{Switch, Telemetry};

/// Upper bounds in seconds: a quarter of a millisecond, doubled fifteen times.
const DURATION_BUCKETS: [f64; 16] =
    [0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192];
/// Types that are told apart; clients must not make the number of series grow.
const TYPES: [&str; 12] = ["A", "AAAA", "CNAME", "HTTPS", "MX", "NS", "PTR", "SOA", "SRV", "TXT", "ANY", "SVCB"];

/// How a question came.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// `udp` or `tcp`.
    pub proto: &'static str,
    /// From an IPv6 client.
    pub v6: bool,
}

/// The server's metrics and checks.
pub struct Metrics {
    requests: Counter<4>,
    responses: Counter<2>,
    durations: Histogram<1>,
    complete: Switch,
    domain: Name,
    zone: String,
}

impl Metrics {
    /// Registers them.
    pub fn new(telemetry: &Telemetry, domain: Name) -> Self {
        let metrics = &telemetry.metrics;
        let help = "Counter of DNS requests made per zone, protocol and family.";
        let requests = metrics.counter("coredns_dns_requests_total", help, ["zone", "proto", "family", "type"]);
        let help = "Counter of response status codes.";
        let responses = metrics.counter("coredns_dns_responses_total", help, ["zone", "rcode"]);
        let help = "Histogram of the time (in seconds) each request took per zone.";
        let name = "coredns_dns_request_duration_seconds";
        let durations = metrics.histogram(name, help, ["zone"], &DURATION_BUCKETS);
        let complete = telemetry.switch("records", Scope::Ready);
        let zone = domain.to_ascii().to_ascii_lowercase();
        Self { requests, responses, durations, complete, domain, zone }
    }

    /// All records of the cluster are there.
    pub fn complete(&self) {
        self.complete.turn_on();
    }

    fn zone(&self, query: &Message) -> &str {
        let inside = query.queries.first().is_some_and(|question| self.domain.zone_of(question.name()));
        if inside { &self.zone } else { "." }
    }

    /// A question came.
    pub fn request(&self, query: &Message, way: Way) {
        let kind = query.queries.first().map(|question| question.query_type().to_string()).unwrap_or_default();
        let kind = TYPES.iter().find(|known| **known == kind).copied().unwrap_or("other");
        let family = if way.v6 { "2" } else { "1" };
        self.requests.inc([self.zone(query), way.proto, family, kind]);
    }

    /// It was answered with these bytes, or not at all.
    pub fn response(&self, query: &Message, bytes: Option<&[u8]>, begin: Instant) {
        let Some(code) = bytes.and_then(|bytes| bytes.get(3)).map(|flags| flags & 0xf) else { return };
        let zone = self.zone(query);
        self.responses.inc([zone, rcode(ResponseCode::from(0, code))]);
        self.durations.observe([zone], begin.elapsed().as_secs_f64());
    }
}

fn rcode(code: ResponseCode) -> &'static str {
    match code {
        ResponseCode::NoError => "NOERROR",
        ResponseCode::FormErr => "FORMERR",
        ResponseCode::ServFail => "SERVFAIL",
        ResponseCode::NXDomain => "NXDOMAIN",
        ResponseCode::NotImp => "NOTIMP",
        ResponseCode::Refused => "REFUSED",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::Query;
    use hickory_proto::rr::RecordType;

    use super::*;

    #[test]
    fn questions_and_answers_are_counted() {
        let telemetry = Telemetry::default();
        let metrics = Metrics::new(&telemetry, Name::from_ascii("cluster.local.").unwrap());
        for (name, kind) in [("x.Cluster.local.", RecordType::A), ("example.org.", RecordType::from(65_000))] {
            let mut query = Message::query();
            query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
            metrics.request(&query, Way { proto: "udp", v6: false });
            metrics.response(&query, Some(&[0, 0, 0x81, 0x83]), Instant::now());
            metrics.response(&query, None, Instant::now());
        }
        let text = telemetry.metrics.render();
        for line in [
            "coredns_dns_requests_total{zone=\"cluster.local.\",proto=\"udp\",family=\"1\",type=\"A\"} 1\n",
            "coredns_dns_requests_total{zone=\".\",proto=\"udp\",family=\"1\",type=\"other\"} 1\n",
            "coredns_dns_responses_total{zone=\"cluster.local.\",rcode=\"NXDOMAIN\"} 1\n",
            "coredns_dns_request_duration_seconds_count{zone=\".\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
