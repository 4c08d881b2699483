//! What the suite runs on: a dispatch, and what can happen to its server. In memory, and Redis.

use std::future::Future;
use std::time::Duration;

use fairtrial_cluster::{
    Class, Dispatch, Endpoint, MemoryDispatch, QueueName, RedisDispatch, StreamId,
};
use fairtrial_tests::RedisServer;
use redis::aio::MultiplexedConnection;

/// A dispatch, and what can happen to it.
pub(crate) trait Stage: Sync {
    /// What is tested.
    fn dispatch(&self) -> &impl Dispatch;

    /// Time passes, for leases, owners, waiting tasks and nodes.
    fn pass(&self, by: Duration) -> impl Future<Output = ()>;

    /// An entry is deleted behind everybody's back.
    fn delete_entry(
        &self,
        queue: &QueueName,
        class: Class,
        entry: StreamId,
    ) -> impl Future<Output = ()>;

    /// Everything is lost.
    fn flush(&self) -> impl Future<Output = ()>;
}

impl Stage for MemoryDispatch {
    fn dispatch(&self) -> &impl Dispatch {
        self
    }

    async fn pass(&self, by: Duration) {
        self.advance(by);
    }

    async fn delete_entry(&self, queue: &QueueName, class: Class, entry: StreamId) {
        Self::delete_entry(self, queue, class, entry);
    }

    async fn flush(&self) {
        Self::flush(self);
    }
}

/// A server and its dispatch.
pub(crate) struct RedisStage {
    pub(crate) server: RedisServer,
    pub(crate) dispatch: RedisDispatch,
}

impl RedisStage {
    pub(crate) fn start() -> Option<Self> {
        let server = RedisServer::start()?;
        let dispatch = dispatch_to(&server.url());
        Some(Self { server, dispatch })
    }

    /// A connection of the test's own.
    pub(crate) async fn raw(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.server.url()).unwrap();
        let patient = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        client
            .get_multiplexed_async_connection_with_config(&patient)
            .await
            .unwrap()
    }

    /// Does something to the server directly.
    pub(crate) async fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut cmd = redis::cmd(words[0]);
        cmd.arg(&words[1..]);
        cmd.query_async(&mut self.raw().await).await.unwrap()
    }
}

pub(crate) fn dispatch_to(url: &str) -> RedisDispatch {
    RedisDispatch::new(Endpoint::parse(url).unwrap()).unwrap()
}

/// Makes everything that the server dates so many ms older. A test's clock: nobody waits.
const OLDER: &str = r#"
local by = tonumber(ARGV[1])
for _, queue in ipairs(redis.call('HKEYS', 'ft:queues')) do
  local key = 'ft:{' .. queue .. '}:'
  redis.call('HINCRBY', key .. 'meta', 'seen', -by)
  local tasks = redis.call('HGETALL', key .. 'task')
  for i = 1, #tasks, 2 do
    if not string.find(tasks[i], ':', 1, true) then
      local record = cmsgpack.unpack(tasks[i + 1])
      record.since = record.since - by
      redis.call('HSET', key .. 'task', tasks[i], cmsgpack.pack(record))
    end
  end
  for _, class in ipairs({ 'cpu', 'timing' }) do
    local stream = key .. 'q:' .. class
    for _, each in ipairs(redis.call('XPENDING', stream, 'agents', '-', '+', 100000)) do
      if #redis.call('XRANGE', stream, each[1], each[1]) > 0 then
        redis.call('XCLAIM', stream, 'agents', each[2], 0, each[1],
          'IDLE', each[3] + by, 'RETRYCOUNT', each[4], 'JUSTID')
      end
    end
  end
end
for _, name in ipairs(redis.call('SMEMBERS', 'ft:nodes')) do
  local left = redis.call('PTTL', 'ft:node:' .. name)
  if left > 0 then redis.call('PEXPIRE', 'ft:node:' .. name, math.max(0, left - by)) end
end
"#;

impl Stage for RedisStage {
    fn dispatch(&self) -> &impl Dispatch {
        &self.dispatch
    }

    async fn pass(&self, by: Duration) {
        let () = self
            .command(&["EVAL", OLDER, "0", &by.as_millis().to_string()])
            .await;
    }

    async fn delete_entry(&self, queue: &QueueName, class: Class, entry: StreamId) {
        let stream = format!("ft:{{{queue}}}:q:{class}");
        let () = self.command(&["XDEL", &stream, &entry.to_string()]).await;
    }

    async fn flush(&self) {
        let () = self.command(&["FLUSHALL"]).await;
    }
}
