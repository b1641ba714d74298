//! The yardstick that people write themselves: nginx with Lua and a Redis beside it.
//!
//! One worker. A claim is `SET key pending NX EX`, the upstream is asked in a subrequest over
//! connections that are kept, `SET key answer EX` records status, media type and body, and a key that
//! is taken is answered from `GET`. It does less than idempo (no fingerprint, no fence, no lease, no
//! second thought about an upstream that did not answer), so that it is no easy yardstick.

use super::lane::{KEPT, LOOKS, Lane, PASSING, PASSING_S};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Where Debian puts the modules and the client (nginx-light, libnginx-mod-http-lua, lua-nginx-redis).
const MODULES: [&str; 2] = [
    "/usr/lib/nginx/modules/ndk_http_module.so",
    "/usr/lib/nginx/modules/ngx_http_lua_module.so",
];
const CLIENT: &str = "/usr/share/lua/5.1/nginx/redis.lua";

/// For how long a recorded answer that is to be replayed stays, seconds.
const KEPT_S: u64 = 86_400;

/// An nginx that ends with the benchmark.
#[derive(Debug)]
pub(crate) struct Nginx {
    process: Child,
    addr: SocketAddr,
    _dir: TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Nginx {
    /// Starts one; `None` where it is not installed.
    pub(crate) fn start(upstream: SocketAddr, redis: &Path) -> Result<Option<Self>, String> {
        let installed = MODULES
            .iter()
            .chain([&CLIENT])
            .all(|f| Path::new(f).is_file());
        if !installed || version().is_none() {
            return Ok(None);
        }
        // It says of no port which it took: one that was free a moment ago, and another where somebody
        // was faster.
        let mut why = String::new();
        for _ in 0..5 {
            match Self::attempt(upstream, redis) {
                Ok(started) => return Ok(Some(started)),
                Err(e) => why = e,
            }
        }
        Err(format!("nginx does not start: {why}"))
    }

    fn attempt(upstream: SocketAddr, redis: &Path) -> Result<Self, String> {
        let dir = TempDir::with_prefix("idempo-nginx-").map_err(|e| e.to_string())?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
        let addr = free.map_err(|e| e.to_string())?;
        let file = dir.path().join("nginx.conf");
        let text = configuration(dir.path(), addr, upstream, redis);
        fs::write(&file, text).map_err(|e| e.to_string())?;
        let mut process = Command::new("nginx")
            .args(["-p".as_ref(), dir.path().as_os_str()])
            .args(["-e".as_ref(), dir.path().join("log").as_os_str()])
            .args(["-c".as_ref(), file.as_os_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| e.to_string())?;
        let end = Instant::now() + Duration::from_secs(15);
        while Instant::now() < end {
            if let Ok(Some(status)) = process.try_wait() {
                let log = fs::read_to_string(dir.path().join("log")).unwrap_or_default();
                return Err(format!("{status}\n{log}"));
            }
            if std::net::TcpStream::connect(addr).is_ok() {
                return Ok(Self {
                    process,
                    addr,
                    _dir: dir,
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = process.kill();
        let _ = process.wait();
        Err("nobody listens after 15 s".into())
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The commands that a request of that lane takes.
    pub(crate) const fn commands(lane: Lane) -> &'static [&'static str] {
        match lane {
            Lane::NginxLooks => &["get"],
            _ => &["set", "get"],
        }
    }
}

/// `x.y.z`, where it is installed.
pub(crate) fn version() -> Option<String> {
    let said = Command::new("nginx").arg("-v").output().ok()?;
    let text = String::from_utf8(said.stderr).ok()?;
    Some(text.trim().rsplit_once('/')?.1.to_owned())
}

/// The whole configuration. The process is its own worker (`master_process off`), so that there is
/// one to be pinned and to be timed.
fn configuration(dir: &Path, addr: SocketAddr, upstream: SocketAddr, redis: &Path) -> String {
    let dir = dir.display();
    let [ndk, lua] = MODULES;
    let location = |path: &str, seconds: u64, looks: bool| {
        format!(
            "    location {path} {{\n      set $seconds {seconds};\n      set $looks {};\n      \
             content_by_lua_block {{ require('idempotent').run() }}\n    }}\n",
            u8::from(looks)
        )
    };
    let locations = [
        location(PASSING, PASSING_S, false),
        location(KEPT, KEPT_S, false),
        location(LOOKS, KEPT_S, true),
    ]
    .concat();
    let script = script(redis);
    format!(
        "load_module {ndk};
load_module {lua};
daemon off;
master_process off;
worker_processes 1;
pid {dir}/pid;
error_log {dir}/log error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  client_body_buffer_size 64k;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  init_by_lua_block {{
    package.preload['idempotent'] = function()
{script}
    end
  }}
  upstream behind {{
    server {upstream};
    keepalive 256;
    keepalive_requests 1000000000;
  }}
  server {{
    listen {addr};
{locations}
    location /behind/ {{
      internal;
      proxy_http_version 1.1;
      proxy_set_header connection '';
      proxy_set_header host $http_host;
      proxy_buffers 16 16k;
      proxy_pass http://behind/;
    }}
  }}
}}
"
    )
}

fn script(redis: &Path) -> String {
    let socket = redis.display();
    format!(
        r"
      local redis = require 'nginx.redis'
      local function answer(status, media_type, body, replayed)
        ngx.status = status
        ngx.header['content-type'] = media_type
        ngx.header['content-length'] = #body
        if replayed then ngx.header['idempotent-replayed'] = 'true' end
        ngx.print(body)
      end
      local function replay(kept)
        if kept == 'pending' then return answer(409, 'text/plain', 'in flight') end
        local status, media_type, body = string.match(kept, '^(%d+)\n([^\n]*)\n(.*)$')
        return answer(tonumber(status), media_type, body, true)
      end
      local function run()
        local key = 'nginx:' .. ngx.var.http_idempotency_key
        ngx.req.read_body()
        local db = redis:new()
        db:set_timeout(2000)
        if not db:connect('unix:{socket}') then return answer(503, 'text/plain', 'no store') end
        local kept
        if ngx.var.looks == '1' then kept = db:get(key) end
        if not kept or kept == ngx.null then
          local won, why = db:set(key, 'pending', 'NX', 'EX', ngx.var.seconds)
          if not won then return answer(503, 'text/plain', 'store: ' .. why) end
          if won == ngx.null then kept = db:get(key) else kept = nil end
        end
        if kept then
          db:set_keepalive(60000, 256)
          return replay(kept)
        end
        local said = ngx.location.capture('/behind' .. ngx.var.uri, {{
          method = ngx.HTTP_POST, always_forward_body = true }})
        local media_type = said.header['Content-Type'] or ''
        local value = said.status .. '\n' .. media_type .. '\n' .. said.body
        local done, why = db:set(key, value, 'EX', ngx.var.seconds)
        if not done then return answer(503, 'text/plain', 'store: ' .. why) end
        db:set_keepalive(60000, 256)
        return answer(said.status, media_type, said.body)
      end
      return {{ run = run }}"
    )
}
