// SPDX-License-Identifier: Apache-2.0
// One page that holds everything and loads nothing: its Content-Security-Policy forbids all requests. What
// comes from the target is data in a JSON block, and reaches the page as text only (textContent), never as
// markup.
#include <algorithm>

#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/match/quantity.h"
#include "core/report/report.h"

namespace whomap {
namespace {

constexpr std::string_view page_start = R"html(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>whomap report</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<style>
body{font:14px/1.45 system-ui,sans-serif;margin:1.5em auto;max-width:75em;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:1.6em}code,td,pre{font-family:ui-monospace,monospace;font-size:13px}
#verdict{padding:.7em 1em;background:#f4f1e8;border-left:.4em solid #b5651d}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.15em .7em .15em 0;vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}tr:nth-child(even){background:#f7f7f7}
#graph{position:relative;border:1px solid #ccc;overflow:hidden;background:#fafafa}
#graph div{position:absolute;height:18px;overflow:hidden;white-space:nowrap;font:12px/18px ui-monospace,monospace;
border:0 solid #fff;border-width:0 1px 1px 0;box-sizing:border-box;padding-left:3px;cursor:pointer;color:#222}
#graph div:hover{outline:1px solid #000}details{margin:.4em 0}summary{cursor:pointer}
.culprit{font-weight:bold}.advice{margin:.5em 0 .5em 1.5em;padding-left:.8em;border-left:.2em solid #7a9}
@media(prefers-color-scheme:dark){body{background:#1b1b1b;color:#ddd}#verdict{background:#2c2822}
tr:nth-child(even){background:#242424}#graph{background:#222;border-color:#444}}
</style></head><body>
<h1></h1><p id="verdict"></p><p id="facts"></p>
<h2>Stacks <small>(outermost above; width is <span id="weight"></span> bytes; click to zoom)</small></h2>
<div id="graph"></div><p id="hover">&nbsp;</p><div id="stacks"></div>
<h2>Regions that grew</h2><table id="regions"></table>
<h2>Not explained by any captured call</h2><table id="unexplained"></table>
<h2>Change of resident memory</h2><table id="resident"></table><h2>Notes</h2><ul id="notes"></ul>
<script type="application/json" id="data">)html";

constexpr std::string_view page_end = R"html(</script>
<script>
"use strict";
const data=JSON.parse(document.getElementById("data").textContent),report=data.report;
const $=id=>document.getElementById(id);
const make=(parent,tag,text,cls)=>{const e=document.createElement(tag);if(text!==undefined)e.textContent=text;
  if(cls)e.className=cls;parent.appendChild(e);return e;};
const bytes=n=>{if(n===null||n===undefined)return "unknown";const sign=n<0?"-":"";n=Math.abs(n);
  for(const u of ["B","KiB","MiB","GiB","TiB"]){if(n<1000||u==="TiB")return sign+(n<10&&u!=="B"?n.toFixed(1):Math.round(n))+" "+u;n/=1024;}};
const name=f=>f.name;
document.querySelector("h1").textContent="whomap: "+(report.target.exe||"process")+" (pid "+report.target.pid+")";
$("verdict").textContent=(report.verdict.class||"unknown").toUpperCase()+": "+report.verdict.text;
$("facts").textContent=[report.trace.engine,report.trace.seconds===null?"no times":report.trace.seconds.toFixed(1)+" s",
  report.trace.events+(report.trace.events===1?" call":" calls"),report.trace.lost===null?"losses unknown":report.trace.lost+" lost",
  bytes(report.growth.mapped_bytes)+" newly mapped",bytes(report.growth.explained_bytes)+" explained"].join(" · ");
$("weight").textContent=data.weight;
const weigh=s=>(data.weight==="growth"?s.growth_bytes:s.live_bytes)||0;
const root={name:"all",value:0,children:new Map()};
report.stacks.forEach((s,i)=>{const w=weigh(s);if(!w)return;const names=data.names[i].slice().reverse();
  let at=root;at.value+=w;for(const n of names){if(!at.children.has(n))at.children.set(n,{name:n,value:0,children:new Map(),parent:at});
    at=at.children.get(n);at.value+=w;}});
const depth=n=>1+Math.max(0,...[...n.children.values()].map(depth));
const hue=t=>{let h=0;for(const c of t)h=(h*31+c.codePointAt(0))%1000;return "hsl("+(15+h%45)+",75%,"+(62+h%16)+"%)";};
function draw(focus){const g=$("graph");g.textContent="";const above=[];for(let n=focus.parent;n;n=n.parent)above.unshift(n);
  let row=0;const box=(n,x,w,y)=>{const d=make(g,"div",n.name);d.style.left=100*x+"%";d.style.width=100*w+"%";d.style.top=18*y+"px";
    d.style.background=hue(n.name);d.title=n.name+": "+bytes(n.value);d.onclick=()=>draw(n);
    d.onmouseover=()=>{$("hover").textContent=n.name+": "+bytes(n.value)+(root.value?", "+(100*n.value/root.value).toFixed(1)+" %":"");};};
  for(const n of above)box(n,0,1,row++);
  const put=(n,x,w,y)=>{if(w<0.0005)return;box(n,x,w,y);let at=x;
    for(const c of [...n.children.values()].sort((a,b)=>b.value-a.value)){const part=n.value?w*c.value/n.value:0;put(c,at,part,y+1);at+=part;}};
  put(focus,0,1,row);g.style.height=18*(row+depth(focus))+"px";}
draw(root);
report.stacks.forEach((s,i)=>{if(!weigh(s)&&i>0)return;const d=make($("stacks"),"details");d.open=i<3;
  make(d,"summary","#"+(i+1)+" "+bytes(weigh(s))+" by "+s.count+" "+s.syscall+(s.count===1?" call [":" calls [")+(s.class||"?")+"]");
  const t=make(d,"table");s.frames.forEach((f,k)=>{const r=make(t,"tr",undefined,k===s.culprit_frame?"culprit":"");make(r,"td",String(k),"n");
    make(r,"td",data.names[i][k]+(f.inlined?" (inlined)":"")+(f.guessed?" (guessed)":""));make(r,"td",f.file?f.file+(f.line?":"+f.line:""):(f.module||""));});
  if(s.truncated)make(d,"p","the stack ends here: "+s.truncated);
  for(const a of s.advice){const p=make(d,"div",undefined,"advice");
    make(p,"div",a.signature+": "+a.cause+" ["+({A:"documented",B:"measured by who reported it"}[a.certainty]||"UNCONFIRMED")+"]");
    if(a.remedy){make(p,"div","Remedy: "+a.remedy);make(p,"div","Hazard: "+a.hazard);}make(p,"div","Source: "+a.source);}});
const table=(id,heads,rows)=>{const t=$(id),h=make(t,"tr");for(const x of heads)make(h,"th",x);
  for(const r of rows){const tr=make(t,"tr");for(const x of r)make(tr,"td",x);}if(!rows.length){t.textContent="";make(make(t,"tr"),"td","none");}};
table("regions",["addresses","size","resident","explained","class","evidence"],report.regions.map(r=>[r.start+"-"+r.end,
  bytes(r.size_delta),r.rss_delta===null?"?":bytes(r.rss_delta),bytes(r.explained_bytes),r.class+(r.name?" "+r.name:""),r.evidence]));
table("unexplained",["bytes","what is known"],report.unexplained.map(u=>[bytes(u.bytes),u.reason]));
table("resident",["bytes","where"],report.resident.map(u=>[bytes(u.bytes),u.where]));
for(const n of report.notes)make($("notes"),"li",n);
</script></body></html>
)html";

}  // namespace

std::string to_html(const Answer& answer, Weight weight) {
  nlohmann::ordered_json data{{"weight", weight == Weight::growth ? "growth" : "live"},
                              {"report", to_json(answer)},
                              {"names", nlohmann::ordered_json::array()}};
  for (const StackAnswer& row : answer.stacks) {
    auto names = nlohmann::ordered_json::array();
    for (const Frame& frame : row.stack.frames) names.push_back(json_text(viewer_name(frame)));
    data["names"].push_back(std::move(names));
  }
  std::string text = dump_line(data);
  // "</script>" in a name would end the block; JSON may write any character as an escape.
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return std::string(page_start) + safe + std::string(page_end);
}

}  // namespace whomap
