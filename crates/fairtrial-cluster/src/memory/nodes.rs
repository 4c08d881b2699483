//! Agents' names, and until when they are live.

use super::Server;
use crate::answers::{Announced, Nodes};
use crate::names::Agent;
use crate::terms::{NODE_LOST_AFTER, Node};

impl Server {
    pub(super) fn announce(&mut self, node: &Node) -> Announced {
        if self.is_anothers(&node.agent) {
            return Announced::Taken;
        }
        let until = self.now_ms + NODE_LOST_AFTER.as_millis() as u64;
        let name = node.agent.name().to_owned();
        self.names.insert(name.clone());
        self.nodes.insert(name, (node.clone(), until));
        Announced::Ok
    }

    pub(super) fn remove_node(&mut self, agent: &Agent) -> Announced {
        if self.is_anothers(agent) {
            return Announced::Taken;
        }
        self.nodes.remove(agent.name());
        self.names.remove(agent.name());
        Announced::Ok
    }

    pub(super) fn forget_node(&mut self, name: &str) -> bool {
        self.live(name).is_none() && self.names.remove(name)
    }

    pub(super) fn list_nodes(&self) -> Nodes {
        let mut nodes = Nodes::default();
        for name in &self.names {
            match self.nodes.get(name).filter(|_| self.live(name).is_some()) {
                Some((node, until)) => {
                    nodes.live.push(node.clone());
                    let seen_ms = until - NODE_LOST_AFTER.as_millis() as u64;
                    nodes.seen_ms.push(Some(seen_ms));
                }
                None => nodes.lost.push(name.clone()),
            }
        }
        nodes
    }

    fn live(&self, name: &str) -> Option<&Node> {
        let (node, until) = self.nodes.get(name)?;
        (*until > self.now_ms).then_some(node)
    }

    fn is_anothers(&self, agent: &Agent) -> bool {
        self.live(agent.name())
            .is_some_and(|node| node.agent != *agent)
    }
}
