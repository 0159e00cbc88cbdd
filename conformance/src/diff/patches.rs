//! Feed 3: sequences of patches. An object is created or applied, then two to four managers patch, apply and update it;
//! compared is every answer, managed fields included. A sequence ends at its first difference.

use std::collections::HashMap;

use futures::{StreamExt, stream};
use pintle_machinery::schema::StructType;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::Bounds;
use super::changes;
use super::compare::{self, Comparison};
use super::corpus::{Corpus, Sample, escape};
use super::generate::Generator;
use super::own::Own;
use super::patch_bodies;
use super::score::Found;
use super::servers::Pair;
use super::wire::{Request, Status};

/// Where the objects are.
const NAMESPACE: &str = "patched";
/// Where those are that would bind the others.
const BINDING: &str = "patched-limits";
/// Requests of a sequence, in the mean.
const LENGTH: u64 = 4;
/// Sequences that are under way at once.
const AT_ONCE: usize = 5;
/// Sequences to make one difference small.
const SHRINK: usize = 6;
/// Kinds whose names are bound to their content.
const LEFT_OUT: [&str; 2] = ["ClusterTrustBundle", "IPAddress"];

/// One sequence: an object and the requests about it.
struct Sequence {
    sample: Sample,
    ty: &'static StructType,
    namespace: &'static str,
    name: String,
    seed: u64,
}

/// Runs the feed.
pub async fn run(pair: &Pair, corpus: &Corpus, bounds: &Bounds) -> anyhow::Result<Found> {
    pair.namespace(NAMESPACE).await?;
    pair.namespace(BINDING).await?;
    let samples: Vec<&Sample> = corpus.samples.iter().filter(|sample| fits(sample, bounds)).collect();
    anyhow::ensure!(!samples.is_empty(), "no sample is of such a kind");
    let mut rng = StdRng::seed_from_u64(bounds.seed);
    let mut found = Found::default();
    let mut seen: HashMap<String, u32> = HashMap::new();
    let wanted = usize::try_from(bounds.requests / LENGTH)?;
    let sequences: Vec<Sequence> = (1_u64..)
        .filter_map(|number| sequence(samples[rng.random_range(0..samples.len())], number, rng.random()))
        .take(wanted)
        .collect();
    for some in sequences.chunks(AT_ONCE * 4) {
        if bounds.shutdown.is_cancelled() {
            break;
        }
        let ran: Vec<anyhow::Result<Vec<Comparison>>> =
            stream::iter(some).map(|sequence| play(pair, sequence)).buffered(AT_ONCE).collect().await;
        for (sequence, ran) in some.iter().zip(ran) {
            let mut comparisons = ran?;
            let kind = sequence.sample.kind();
            if let Some(difference) = comparisons.last().and_then(Comparison::difference) {
                let times = seen.entry(format!("{kind} {:?} {}", difference.class, difference.path)).or_default();
                *times += 1;
                if *times <= 2 {
                    shrink(pair, sequence, &mut comparisons).await?;
                }
            }
            comparisons.into_iter().for_each(|comparison| found.add(&kind, comparison));
        }
    }
    Ok(found)
}

fn fits(sample: &Sample, bounds: &Bounds) -> bool {
    let kind = sample.kind();
    let fixed = sample.object["spec"]["clusterIP"].as_str().is_some_and(|ip| ip != "None");
    let bound = LEFT_OUT.contains(&kind.as_str());
    sample.resource.allows("patch") && !sample.unsettles() && !bound && !fixed && bounds.wants(&kind)
}

fn sequence(sample: &Sample, number: u64, seed: u64) -> Option<Sequence> {
    let resource = sample.resource;
    let ty = pintle_api::schema().kind(resource.group, resource.version, resource.kind)?;
    let namespace = if matches!(resource.kind, "LimitRange" | "ResourceQuota") { BINDING } else { NAMESPACE };
    let name = format!("p{number}");
    let mut sample = sample.clone();
    sample.object["metadata"]["name"] = json!(name);
    let values = [("ns".to_owned(), namespace.to_owned())];
    super::corpus::substitute(&mut sample.object, &values.into());
    Some(Sequence { sample, ty, namespace, name, seed })
}

impl Sequence {
    fn path(&self) -> String {
        format!("{}/{}", self.sample.collection(self.namespace), escape(&self.name))
    }

    /// The first request: most objects are created, some applied.
    fn first(&self, generator: &mut Generator<'_>) -> Request {
        let object = &self.sample.object;
        match generator.percent(60) {
            true => Request::json("POST", self.sample.collection(self.namespace) + "?fieldManager=m0", object),
            false => self.applied(generator, object.clone()),
        }
    }

    fn applied(&self, generator: &mut Generator<'_>, body: Value) -> Request {
        let manager = *generator.pick(&["m1", "m2", "m3"]);
        let force = if generator.percent(40) { "&force=true" } else { "" };
        let path = format!("{}?fieldManager={manager}{force}", self.path());
        Request::new("PATCH", path).typed("application/apply-patch+yaml", &body)
    }

    /// A request about the object as it is.
    fn next(&self, generator: &mut Generator<'_>, live: &Value) -> Request {
        let manager = *generator.pick(&["m0", "m1", "m4"]);
        let path = |sub: &str| format!("{}{sub}?fieldManager={manager}", self.path());
        match generator.rng.random_range(0..100) {
            0..20 => {
                let body = patch_bodies::json_patch(generator, self.ty, live);
                Request::new("PATCH", path("")).typed("application/json-patch+json", &body)
            }
            20..40 => {
                let body = patch_bodies::merge(generator, self.ty, live);
                Request::new("PATCH", path("")).typed("application/merge-patch+json", &body)
            }
            40..65 => {
                let body = patch_bodies::strategic(generator, self.ty, live);
                Request::new("PATCH", path("")).typed("application/strategic-merge-patch+json", &body)
            }
            65..90 => {
                let body = patch_bodies::applied(generator, self.ty, &self.sample.object);
                self.applied(generator, body)
            }
            90..95 if self.sample.resource.subresource("status").is_some() => {
                let status = self.ty.field("status").map(|field| generator.plausible(field)).unwrap_or_default();
                let body = json!({"status": status, "metadata": {"labels": {"by": "status"}}});
                Request::new("PATCH", path("/status")).typed("application/merge-patch+json", &body)
            }
            _ => {
                let mut object = live.clone();
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.retain(|field, _| !matches!(field.as_str(), "resourceVersion" | "uid" | "managedFields"));
                }
                let change = changes::random(generator, self.ty, &object);
                Request::json("PUT", path(""), &changes::apply(&object, change.as_slice()))
            }
        }
    }
}

/// Plays a sequence until its end or a difference, then removes the object.
async fn play(pair: &Pair, sequence: &Sequence) -> anyhow::Result<Vec<Comparison>> {
    let mut rng = StdRng::seed_from_u64(sequence.seed);
    let mut generator = Generator { schema: pintle_api::schema(), rng: &mut rng };
    let steps = generator.rng.random_range(2..5);
    let mut live = Value::Null;
    let mut own = Own::default();
    let mut comparisons: Vec<Comparison> = Vec::new();
    for step in 0..=steps {
        let request = match step {
            0 => sequence.first(&mut generator),
            _ => sequence.next(&mut generator, &live),
        };
        let told = own.told(&request);
        let (upstream, ours) = tokio::try_join!(pair.upstream.send(&request), pair.ours.send(&told))?;
        let mut comparison = compare::answers(&request, upstream, own.heard(ours));
        comparison.before = comparisons.iter().map(|one| one.request.clone()).collect();
        let answer = comparison.upstream.json().unwrap_or_default();
        if answer["kind"] != "Status" {
            own.learn(&answer, &comparison.ours.json().unwrap_or_default());
            live = answer;
        }
        let over = comparison.difference().is_some() || live.is_null();
        comparisons.push(comparison);
        if over {
            break;
        }
    }
    remove(pair, &sequence.path()).await?;
    Ok(comparisons)
}

async fn remove(pair: &Pair, path: &str) -> anyhow::Result<()> {
    let body = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    let (upstream, ours) = pair.send(&Request::json("DELETE", path, &body)).await?;
    if [upstream.status, ours.status] == [Status::Http(404); 2] {
        return Ok(());
    }
    // Finalizers that a patch has set would keep it.
    let patch =
        Request::new("PATCH", path).typed("application/merge-patch+json", &json!({"metadata": {"finalizers": null}}));
    pair.send(&patch).await?;
    Ok(())
}

/// Leaves out the requests before the different one, as long as it stays different.
async fn shrink(pair: &Pair, sequence: &Sequence, comparisons: &mut [Comparison]) -> anyhow::Result<()> {
    let Some(last) = comparisons.last_mut() else { return Ok(()) };
    let Some(wanted) = last.difference().cloned() else { return Ok(()) };
    let mut tries = 0;
    let mut at = last.before.len();
    while at > 0 && tries < SHRINK {
        at -= 1;
        tries += 1;
        let mut fewer = last.before.clone();
        fewer.remove(at);
        let mut again: Option<Comparison> = None;
        for request in fewer.iter().chain([&last.request]) {
            let (upstream, ours) = pair.send(request).await?;
            again = Some(compare::answers(request, upstream, ours));
        }
        remove(pair, &sequence.path()).await?;
        if let Some(mut comparison) = again
            && let Some(found) = comparison.difference()
            && (found.class, &found.path) == (wanted.class, &wanted.path)
        {
            comparison.before = fewer;
            // A smaller example, but what counts is what was found.
            comparison.differences = std::mem::take(&mut last.differences);
            *last = comparison;
        }
    }
    Ok(())
}
