//! cronjob-controller: starts jobs by the calendar.

mod plan;
mod schedule;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::Resource;
use kube::api::{DeleteParams, PostParams};
use pintle_client::cache::Cache;
use pintle_client::events::Recorder;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::key::Key;
use crate::meta;
use crate::retry::{gone_is_fine, is_already_exists, is_namespace_terminating, message};

struct Controller {
    ctx: Context,
    crons: Cache<CronJob>,
    jobs: Cache<Job>,
    recorder: Recorder,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let controller = Arc::new(Controller {
        crons: ctx.cache(),
        jobs: ctx.cache(),
        recorder: ctx.recorder("cronjob-controller"),
        ctx: ctx.clone(),
    });
    controller.crons.synced().await;
    controller.jobs.synced().await;
    let queue = ctx.queue("cronjob");
    let keys = queue.clone();
    controller.crons.on_change(ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
    let keys = queue.clone();
    controller.jobs.on_change(ctx.shutdown.clone(), move |change| {
        let job = &change.object().metadata;
        if let Some(owner) = meta::controller_of_kind(job, "CronJob") {
            keys.add(Key::new(meta::namespace(job), &owner.name));
        }
    });
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    })
    .await;
    Ok(())
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(cron) = self.crons.get(key.ns(), &key.name) else { return Ok(Action::Done) };
        let ours = |j: &Arc<Job>| meta::is_controlled_by(&j.metadata, meta::uid(&cron.metadata));
        let jobs: Vec<_> = self.jobs.list_in(&key.ns).into_iter().filter(ours).collect();
        let plan = plan::plan(&cron, &jobs, Timestamp::now());
        let owner = cron.object_ref(&());
        for (warning, reason, text) in plan.tell {
            match warning {
                true => self.recorder.warning(&owner, reason, text),
                false => self.recorder.normal(&owner, reason, text),
            }
        }
        let api = self.ctx.api::<Job>(&key.ns);
        for job in plan.replace.iter().chain(&plan.forget) {
            let name = meta::name(&job.metadata);
            gone_is_fine(api.delete(name, &DeleteParams::background()).await.map(|_| ()))?;
            self.recorder.normal(&owner, "SuccessfulDelete", format!("Deleted job {name}"));
        }
        let mut status = plan.status;
        if let Some((job, due)) = plan.start {
            let name = meta::name(&job.metadata).to_owned();
            match api.create(&PostParams::default(), &job).await {
                Ok(made) => {
                    self.recorder.normal(&owner, "SuccessfulCreate", format!("Created job {name}"));
                    plan::note_start(&mut status, &made, due);
                }
                Err(error) if is_already_exists(&error) => {
                    let made = api.get(&name).await?;
                    plan::note_start(&mut status, &made, due);
                }
                Err(error) if is_namespace_terminating(&error) => return Ok(Action::Done),
                Err(error) => {
                    let text = format!("Error creating job: {}", message(&error));
                    self.recorder.warning(&owner, "FailedCreate", text);
                    return Err(error.into());
                }
            }
        }
        if cron.status.as_ref() != Some(&status) {
            let changed = CronJob { status: Some(status), ..(*cron).clone() };
            let api = self.ctx.api::<CronJob>(&key.ns);
            gone_is_fine(api.replace_status(&key.name, &PostParams::default(), &changed).await)?;
        }
        Ok(plan.requeue.map_or(Action::Done, Action::RequeueAfter))
    }
}
