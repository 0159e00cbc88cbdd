//! One query message to its response.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::records::{Data, Found, Records, Wanted};

/// What to do with a query.
#[derive(Debug)]
pub enum Outcome {
    /// Send this.
    Respond(Message),
    /// The name is not the cluster's: ask a resolver.
    Relay,
    /// The answer is an alias to a name outside the cluster: ask a resolver for that name and add what it says.
    Follow(Message, Query),
}

/// Largest answer that is sent over UDP to a client that says nothing else.
pub const PLAIN_UDP: u16 = 512;
/// Largest answer that is sent over UDP at all: fits an Ethernet frame (DNS flag day 2020).
pub const LARGEST_UDP: u16 = 1232;

/// Answers a query from the cluster's records.
pub fn answer(query: &Message, records: &Records, domain: &Name, ttl: u32) -> Outcome {
    let mut response = Message::response(query.metadata.id, query.metadata.op_code);
    response.metadata.recursion_desired = query.metadata.recursion_desired;
    response.add_queries(query.queries.iter().cloned());
    if query.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(LARGEST_UDP);
        response.set_edns(edns);
    }
    let (OpCode::Query, [question]) = (query.metadata.op_code, query.queries.as_slice()) else {
        response.metadata.response_code = ResponseCode::NotImp;
        return Outcome::Respond(response);
    };
    let name = question.name();
    let found = if let Some(labels) = labels_below(name, domain) {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        records.lookup(&labels, wanted(question.query_type()))
    } else {
        match reverse_address(name).map(|ip| records.pointers(ip)) {
            Some(Found::Data(data)) if question.query_type() == RecordType::PTR => Found::Data(data),
            Some(Found::Data(_)) => Found::NoData,
            _ => return Outcome::Relay,
        }
    };
    response.metadata.authoritative = true;
    if !records.is_complete() {
        response.metadata.response_code = ResponseCode::ServFail;
        return Outcome::Respond(response);
    }
    finish(response, question, found, domain, ttl)
}

fn finish(mut response: Message, question: &Query, found: Found, domain: &Name, ttl: u32) -> Outcome {
    match found {
        Found::Data(data) => {
            let mut alias = None;
            for item in data {
                let rdata = match item {
                    Data::Address(IpAddr::V4(ip)) => RData::A(A(ip)),
                    Data::Address(IpAddr::V6(ip)) => RData::AAAA(AAAA(ip)),
                    Data::Text(text) => RData::TXT(TXT::new(vec![text])),
                    Data::Srv(port, target) => match below(&target, domain) {
                        Some(target) => RData::SRV(SRV::new(0, 100, port, target)),
                        None => continue,
                    },
                    Data::Pointer(target) => match below(&target, domain) {
                        Some(target) => RData::PTR(PTR(target)),
                        None => continue,
                    },
                    Data::Alias(target) => match Name::from_ascii(format!("{}.", target.trim_end_matches('.'))) {
                        Ok(target) => {
                            alias = Some(target.clone());
                            RData::CNAME(CNAME(target))
                        }
                        Err(_) => continue,
                    },
                };
                response.add_answer(Record::from_rdata(question.name().clone(), ttl, rdata));
            }
            match alias {
                Some(target) if question.query_type() != RecordType::CNAME => {
                    Outcome::Follow(response, Query::query(target, question.query_type()))
                }
                _ => Outcome::Respond(response),
            }
        }
        missing => {
            if missing == Found::NoName {
                response.metadata.response_code = ResponseCode::NXDomain;
            }
            if let Some(soa) = authority(domain, ttl) {
                response.add_authority(soa);
            }
            Outcome::Respond(response)
        }
    }
}

/// The SOA record that goes with a negative answer (RFC 2308).
fn authority(domain: &Name, ttl: u32) -> Option<Record> {
    let prefixed = |label: &str| Name::from_ascii(label).ok()?.append_domain(domain).ok();
    let soa = SOA::new(prefixed("ns.dns")?, prefixed("hostmaster")?, 1, 7200, 1800, 86400, ttl);
    Some(Record::from_rdata(domain.clone(), ttl, RData::SOA(soa)))
}

/// A message that says that the query cannot be answered now.
pub fn failure(query: &Message, code: ResponseCode) -> Message {
    let mut response = Message::response(query.metadata.id, query.metadata.op_code);
    response.metadata.recursion_desired = query.metadata.recursion_desired;
    response.metadata.response_code = code;
    response.add_queries(query.queries.iter().cloned());
    response
}

/// Parses a query; `None` for what is no query and deserves no answer.
pub fn parse(packet: &[u8]) -> Option<Message> {
    let message = Message::from_vec(packet).ok()?;
    (message.metadata.message_type == MessageType::Query).then_some(message)
}

/// The bytes of a response for UDP: truncated, with the TC flag, if larger than the client takes.
pub fn udp_bytes(query: &Message, response: &Message) -> Option<Vec<u8>> {
    let limit = query.edns.as_ref().map_or(PLAIN_UDP, Edns::max_payload).clamp(PLAIN_UDP, LARGEST_UDP);
    let bytes = response.to_vec().ok()?;
    if bytes.len() <= usize::from(limit) { Some(bytes) } else { response.truncate().to_vec().ok() }
}

fn wanted(kind: RecordType) -> Wanted {
    match kind {
        RecordType::A => Wanted::A,
        RecordType::AAAA => Wanted::Aaaa,
        RecordType::SRV => Wanted::Srv,
        RecordType::TXT => Wanted::Txt,
        _ => Wanted::Other,
    }
}

/// The labels of `name` in front of `domain`, lower case; `None` if it is not below it.
fn labels_below(name: &Name, domain: &Name) -> Option<Vec<String>> {
    if !domain.zone_of(name) {
        return None;
    }
    let own = usize::from(name.num_labels()).checked_sub(usize::from(domain.num_labels()))?;
    Some(name.iter().take(own).map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect())
}

fn below(target: &str, domain: &Name) -> Option<Name> {
    Name::from_ascii(target).ok()?.append_domain(domain).ok()
}

/// The address that an `in-addr.arpa` or `ip6.arpa` name stands for.
fn reverse_address(name: &Name) -> Option<IpAddr> {
    let text = name.to_ascii().to_ascii_lowercase();
    let text = text.trim_end_matches('.');
    if let Some(v4) = text.strip_suffix(".in-addr.arpa") {
        let octets: Vec<u8> = v4.split('.').rev().map(|p| p.parse().ok()).collect::<Option<_>>()?;
        return <[u8; 4]>::try_from(octets).ok().map(|o| IpAddr::V4(Ipv4Addr::from(o)));
    }
    let v6 = text.strip_suffix(".ip6.arpa")?;
    let nibbles: Vec<u8> = v6.split('.').rev().map(|p| u8::from_str_radix(p, 16).ok()).collect::<Option<_>>()?;
    if nibbles.len() != 32 || nibbles.iter().any(|n| *n > 15) {
        return None;
    }
    let octets: Vec<u8> = nibbles.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    <[u8; 16]>::try_from(octets).ok().map(|o| IpAddr::V6(Ipv6Addr::from(o)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(name: &str, kind: RecordType, complete: bool) -> Outcome {
        let mut records = Records::default();
        let service = serde_json::json!({"metadata": {"name": "web", "namespace": "a"},
            "spec": {"clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"], "ports": []}});
        records.put_service(&serde_json::from_value(service).unwrap());
        if complete {
            records.set_complete();
        }
        let mut query = Message::query();
        query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        answer(&query, &records, &Name::from_ascii("cluster.local.").unwrap(), 5)
    }

    fn respond(name: &str, kind: RecordType) -> Message {
        match ask(name, kind, true) {
            Outcome::Respond(message) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_are_authoritative_and_case_does_not_matter() {
        let message = respond("WEB.a.svc.Cluster.Local.", RecordType::A);
        assert!(message.metadata.authoritative);
        assert_eq!(message.answers[0].data, RData::A(A(Ipv4Addr::new(10, 0, 0, 5))));
        assert_eq!(message.answers[0].ttl, 5);
    }

    #[test]
    fn missing_names_have_an_soa() {
        let message = respond("nope.a.svc.cluster.local.", RecordType::A);
        assert_eq!(message.metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(message.authorities.len(), 1);
        let message = respond("web.a.svc.cluster.local.", RecordType::AAAA);
        assert_eq!(message.metadata.response_code, ResponseCode::NoError);
        assert_eq!((message.answers.len(), message.authorities.len()), (0, 1));
    }

    #[test]
    fn reverse_names_and_foreign_names() {
        let message = respond("5.0.0.10.in-addr.arpa.", RecordType::PTR);
        assert_eq!(message.answers[0].data.to_string(), "web.a.svc.cluster.local.");
        assert!(matches!(ask("example.test.", RecordType::A, true), Outcome::Relay));
    }

    #[test]
    fn nothing_is_denied_before_all_is_known() {
        let Outcome::Respond(message) = ask("nope.a.svc.cluster.local.", RecordType::A, false) else { panic!() };
        assert_eq!(message.metadata.response_code, ResponseCode::ServFail);
    }
}
