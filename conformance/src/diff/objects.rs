//! Feed 2: generated objects. Valid samples with one to three random changes, sent as creations and updates that are dry
//! runs; compared are acceptance, the defaulted result and the faults.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::{StreamExt, stream};
use pintle_machinery::schema::StructType;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::Bounds;
use super::changes::{self, Change};
use super::compare::{Comparison, Difference};
use super::corpus::{Corpus, Sample};
use super::generate::Generator;
use super::own::Own;
use super::score::Found;
use super::servers::Pair;
use super::wire::{Request, Status};

/// Where the objects are.
const NAMESPACE: &str = "generated";
/// Where those are that would bind the others.
const BINDING: &str = "generated-limits";
/// Requests that are under way at once.
const AT_ONCE: usize = 6;
/// Requests to make one difference small.
const SHRINK: usize = 12;
/// Servers that have written nothing for so long to new objects are done,
const SETTLE: Duration = Duration::from_secs(2);
/// and those that go on are not waited for any longer.
const UNSETTLED: Duration = Duration::from_secs(30);
/// Stands for the resource version, which is another one on each server.
const VERSION: &str = "<<version>>";

/// What is done with the object.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Create,
    Update,
    UpdateStatus,
}

/// A request to be.
#[derive(Clone, Debug)]
struct Case {
    sample: usize,
    verb: Verb,
    base: Value,
    changes: Vec<Change>,
    validation: &'static str,
}

/// A sample, and what became of it on the servers.
struct Anchor {
    sample: Sample,
    namespace: &'static str,
    ty: &'static StructType,
    /// As upstream completed it, without what is upstream's own.
    live: Option<Value>,
    versions: (String, String),
    own: Own,
}

/// Runs the feed: first with the kinds that leave others alone, then with those that do not.
pub async fn run(pair: &Pair, corpus: &Corpus, bounds: &Bounds) -> anyhow::Result<Found> {
    pair.namespace(NAMESPACE).await?;
    pair.namespace(BINDING).await?;
    let samples: Vec<&Sample> = corpus.samples.iter().filter(|sample| bounds.wants(&sample.kind())).collect();
    anyhow::ensure!(!samples.is_empty(), "no sample is of such a kind");
    let (all, requests) = (samples.len(), usize::try_from(bounds.requests)?);
    let (last, first): (Vec<_>, Vec<_>) = samples.into_iter().partition(|sample| sample.unsettles());
    let mut found = Found::default();
    let mut rng = StdRng::seed_from_u64(bounds.seed);
    for samples in [first, last] {
        let wanted = requests * samples.len() / all;
        part(pair, &samples, wanted, &mut rng, bounds, &mut found).await?;
    }
    Ok(found)
}

/// So many cases about some of the samples.
async fn part(
    pair: &Pair,
    samples: &[&Sample],
    wanted: usize,
    rng: &mut StdRng,
    bounds: &Bounds,
    found: &mut Found,
) -> anyhow::Result<()> {
    let mut anchors = Vec::new();
    for sample in samples {
        anchors.extend(anchor(pair, sample, found).await?);
    }
    settle(pair, &mut anchors).await?;
    let mut kinds: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, anchor) in anchors.iter().enumerate() {
        kinds.entry(anchor.sample.kind()).or_default().push(index);
    }
    let by_kind: Vec<Vec<usize>> = kinds.into_values().collect();
    if by_kind.is_empty() {
        return Ok(());
    }
    let cases: Vec<Case> = std::iter::repeat_with(|| case(&anchors, &by_kind, rng)).flatten().take(wanted).collect();
    let mut small: HashMap<String, u32> = HashMap::new();
    for some in cases.chunks(AT_ONCE * 4) {
        if bounds.shutdown.is_cancelled() {
            break;
        }
        let compared: Vec<anyhow::Result<Comparison>> =
            stream::iter(some).map(|case| pair_compare(pair, &anchors, case)).buffered(AT_ONCE).collect().await;
        for (case, compared) in some.iter().zip(compared) {
            let mut comparison = compared?;
            let kind = anchors[case.sample].sample.kind();
            if let Some(difference) = comparison.difference() {
                let seen = small.entry(format!("{kind} {:?} {}", difference.class, difference.path)).or_default();
                *seen += 1;
                if *seen <= 2 {
                    let differences = comparison.differences.clone();
                    comparison = shrink(pair, &anchors, case.clone(), comparison).await?;
                    // A smaller example, but what counts is what was found.
                    comparison.differences = differences;
                }
            }
            found.add(&kind, comparison);
        }
    }
    Ok(())
}

/// Creates a sample on both servers, if it can be kept there.
async fn anchor(pair: &Pair, sample: &Sample, found: &mut Found) -> anyhow::Result<Option<Anchor>> {
    let resource = sample.resource;
    let Some(ty) = pintle_api::schema().kind(resource.group, resource.version, resource.kind) else { return Ok(None) };
    let mut sample = sample.clone();
    let namespace = if matches!(resource.kind, "LimitRange" | "ResourceQuota") { BINDING } else { NAMESPACE };
    let values = [("ns".to_owned(), namespace.to_owned())];
    super::corpus::substitute(&mut sample.object, &values.into());
    let mut anchor = Anchor { sample, namespace, ty, live: None, versions: Default::default(), own: Own::default() };
    let request = Request::json("POST", anchor.sample.collection(namespace), &anchor.sample.object);
    let comparison = pair.compare(&request).await?;
    found.add(&anchor.sample.kind(), comparison.clone());
    let (upstream, ours) = (comparison.upstream, comparison.ours);
    if !resource.allows("update") || [upstream.status, ours.status] != [Status::Http(201); 2] {
        return Ok(Some(anchor));
    }
    anchor.live = upstream.json().map(without_own);
    Ok(Some(anchor))
}

/// Waits until the servers have stopped writing to what was created, and takes down what is there then.
async fn settle(pair: &Pair, anchors: &mut [Anchor]) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + UNSETTLED;
    loop {
        tokio::time::sleep(SETTLE).await;
        let mut changed = false;
        for anchor in anchors.iter_mut().filter(|anchor| anchor.live.is_some()) {
            let (upstream, ours) = pair.send(&Request::new("GET", anchor.sample.path(anchor.namespace))).await?;
            let version = |body: Option<Value>| {
                let body = body.unwrap_or_default();
                body["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
            };
            let versions = (version(upstream.json()), version(ours.json()));
            changed |= anchor.versions != versions;
            anchor.versions = versions;
            anchor.own.learn(&upstream.json().unwrap_or_default(), &ours.json().unwrap_or_default());
            anchor.live = upstream.json().map(without_own);
        }
        if !changed || tokio::time::Instant::now() > deadline {
            return Ok(());
        }
    }
}

/// The name under which an object is created again; some kinds have no choice.
fn another_name(kind: &str, name: &str) -> String {
    match kind {
        "APIService" | "CustomResourceDefinition" => name.to_owned(),
        "ClusterTrustBundle" => "example.com:sample:two".to_owned(),
        "IPAddress" => "192.0.2.45".to_owned(),
        _ if name.is_empty() => String::new(),
        _ => format!("{name}-2"),
    }
}

/// An object as a client that read it might write it to another server.
fn without_own(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| {
            !matches!(field.as_str(), "uid" | "creationTimestamp" | "managedFields" | "resourceVersion")
        });
    }
    if object["kind"] == "Service"
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.retain(|field, _| !matches!(field.as_str(), "clusterIP" | "clusterIPs"));
    }
    object
}

fn case(anchors: &[Anchor], by_kind: &[Vec<usize>], rng: &mut StdRng) -> Option<Case> {
    let of_kind = &by_kind[rng.random_range(0..by_kind.len())];
    let sample = of_kind[rng.random_range(0..of_kind.len())];
    let anchor = &anchors[sample];
    let has_status = anchor.sample.resource.subresource("status").is_some();
    let verb = match (rng.random_range(0..100), &anchor.live) {
        (0..30, Some(_)) => Verb::Update,
        (30..38, Some(_)) if has_status => Verb::UpdateStatus,
        _ => Verb::Create,
    };
    let mut base = match (&anchor.live, verb) {
        (Some(live), Verb::Update | Verb::UpdateStatus) if rng.random_range(0..100) < 70 => live.clone(),
        _ => anchor.sample.object.clone(),
    };
    if verb == Verb::Create && !anchor.sample.name().is_empty() {
        base["metadata"]["name"] = json!(another_name(&anchor.sample.kind(), anchor.sample.name()));
    }
    if verb != Verb::Create && rng.random_range(0..100) < 60 {
        base["metadata"]["resourceVersion"] = json!(VERSION);
    }
    let mut generator = Generator { schema: pintle_api::schema(), rng };
    let many = *generator.pick(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 3]);
    let mut changes: Vec<Change> = Vec::new();
    if verb == Verb::UpdateStatus {
        let field = anchor.ty.field("status")?;
        changes.push(Change::Set(vec![changes::Step::Key("status".into())], generator.plausible(field)));
    }
    for _ in 0..many {
        let now = changes::apply(&base, &changes);
        changes.extend(changes::random(&mut generator, anchor.ty, &now));
    }
    let validation = *generator.pick(&["Strict", "Strict", "Strict", "Warn", "Ignore", ""]);
    Some(Case { sample, verb, base, changes, validation })
}

async fn pair_compare(pair: &Pair, anchors: &[Anchor], case: &Case) -> anyhow::Result<Comparison> {
    let anchor = &anchors[case.sample];
    let request = request(anchor, case);
    let (theirs, own) = &anchor.versions;
    let (upstream, ours) = (request.replaced(VERSION, theirs), anchor.own.told(&request.replaced(VERSION, own)));
    let (upstream, ours) = tokio::try_join!(pair.upstream.send(&upstream), pair.ours.send(&ours))?;
    Ok(super::compare::answers(&request, upstream, anchor.own.heard(ours)))
}

fn request(anchor: &Anchor, case: &Case) -> Request {
    let object = changes::apply(&case.base, &case.changes);
    let validation = match case.validation {
        "" => String::new(),
        level => format!("&fieldValidation={level}"),
    };
    let options = format!("?dryRun=All{validation}");
    match case.verb {
        Verb::Create => Request::json("POST", anchor.sample.collection(anchor.namespace) + &options, &object),
        Verb::Update => Request::json("PUT", anchor.sample.path(anchor.namespace) + &options, &object),
        Verb::UpdateStatus => {
            Request::json("PUT", format!("{}/status{options}", anchor.sample.path(anchor.namespace)), &object)
        }
    }
}

/// Leaves out changes, and fields of the object, as long as the difference stays the same.
async fn shrink(pair: &Pair, anchors: &[Anchor], case: Case, comparison: Comparison) -> anyhow::Result<Comparison> {
    let Some(wanted) = comparison.difference().cloned() else { return Ok(comparison) };
    let mut best = (case, comparison);
    let mut tries = 0;
    let mut at = 0;
    while at < best.0.changes.len() && tries < SHRINK {
        let mut smaller = best.0.clone();
        smaller.changes.remove(at);
        tries += 1;
        match keeps(pair, anchors, &smaller, &wanted).await? {
            Some(comparison) => best = (smaller, comparison),
            None => at += 1,
        }
    }
    let fields: Vec<String> =
        best.0.base["spec"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
    for field in fields {
        if tries >= SHRINK {
            break;
        }
        let mut smaller = best.0.clone();
        if let Some(spec) = smaller.base["spec"].as_object_mut() {
            spec.remove(&field);
        }
        tries += 1;
        if let Some(comparison) = keeps(pair, anchors, &smaller, &wanted).await? {
            best = (smaller, comparison);
        }
    }
    Ok(best.1)
}

async fn keeps(
    pair: &Pair,
    anchors: &[Anchor],
    case: &Case,
    wanted: &Difference,
) -> anyhow::Result<Option<Comparison>> {
    let comparison = pair_compare(pair, anchors, case).await?;
    let same = |found: &Difference| {
        (found.class, &found.path, &found.upstream, &found.ours)
            == (wanted.class, &wanted.path, &wanted.upstream, &wanted.ours)
    };
    Ok(comparison.difference().is_some_and(same).then_some(comparison))
}
