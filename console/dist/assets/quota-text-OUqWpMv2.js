import{a2 as n,q as e}from"./base-wo-JBZ05.js";const r=(t,s)=>t.endsWith("_bytes")?n(s):t.endsWith("_per_second")?`${e(s)}/s`:e(s);export{r as s};
